/* kv_store: words under keys, spread over all processes. Each process stores and requests words,
 * and serves its own keys.
 *
 * Shows active messages: no process posts a receive. The tag names the request. The bytes belong to
 * the library until free_buffer(). All processes register the same object first, so its number is
 * the same on all of them.
 *
 * Checks itself: each process must find the words that the previous process has stored. Exit status
 * 1 if not.
 *
 *     larklane launch -n 4 ./kv_store --keys 1000
 */
#include <unordered_map>
#include <vector>

#include "native.hpp"

namespace {

using larklane::Completion;
using larklane::CompletionQueue;
using larklane::RemoteCompletion;

enum Kind : std::uint32_t { kStore, kStored, kFetch, kFound, kDone };
struct Record {
  std::uint64_t key, value;
};

class Store {
 public:
  explicit Store(larklane::Context& context)
      : context_(context),
        vci_(native::must(context.create_vci(), "create_vci")),
        mail_(native::must(CompletionQueue::create(context.completions()), "queue")),
        there_(native::must(mail_.register_remote(), "register_remote")) {
    native::meet(context);  // after it, other processes may write to this one
  }

  void put(std::uint64_t key, std::uint64_t value) { post(owner(key), kStore, {key, value}); }
  void get(std::uint64_t key) { post(owner(key), kFetch, {key, 0}); }
  /// Serves until all requests of all processes are answered. A fence would deadlock: a process
  /// that waits in it serves no requests.
  void settle() {
    while (unanswered_ > 0) serve();
    for (int rank = 0; rank < context_.size(); ++rank) send(rank, kDone, {settled_, 0});
    while (done_[settled_] < context_.size()) serve();
    ++settled_;
  }
  const std::unordered_map<std::uint64_t, std::uint64_t>& found() const { return found_; }

 private:
  static constexpr long kUnansweredMax = 64;

  int owner(std::uint64_t key) const {
    return static_cast<int>((key * 0x9E3779B97F4A7C15u >> 32) %
                            static_cast<std::uint64_t>(context_.size()));
  }
  void send(int rank, Kind kind, Record record) {
    native::until_posted(vci_,
                         [&] { return post_am(vci_, rank, there_, kind, &record, sizeof record); });
  }
  void post(int rank, Kind kind, Record record) {
    while (unanswered_ == kUnansweredMax) serve();  // bounds the answers that can queue up here
    send(rank, kind, record);
    ++unanswered_;
  }
  void serve() {
    vci_.progress();
    while (const auto completion = mail_.pop()) {
      native::must(completion->status, "mail");
      Record record{};
      std::memcpy(&record, completion->buffer, sizeof record);
      larklane::free_buffer(completion->buffer);
      answer(completion->rank, static_cast<Kind>(completion->tag), record);
    }
  }
  void answer(int rank, Kind kind, Record record) {
    switch (kind) {
      case kStore:
        words_[record.key] = record.value;
        return send(rank, kStored, record);
      case kFetch:
        return send(rank, kFound, {record.key, words_[record.key]});
      case kFound:
        found_[record.key] = record.value;
        [[fallthrough]];
      case kStored:
        --unanswered_;
        return;
      case kDone:
        ++done_[record.key];  // a faster process may be one call ahead
    }
  }

  larklane::Context& context_;
  larklane::Vci vci_;
  CompletionQueue mail_;
  const RemoteCompletion there_;
  std::unordered_map<std::uint64_t, std::uint64_t> words_;  // the keys of this process
  std::unordered_map<std::uint64_t, std::uint64_t> found_;
  long unanswered_ = 0;
  std::uint64_t settled_ = 0;                    // calls of settle()
  std::unordered_map<std::uint64_t, int> done_;  // processes, by call
};

std::uint64_t value_of(std::uint64_t key) { return key * key + 1; }

}  // namespace

int main(int argc, char** argv) {
  long keys = 1000;
  native::read_options(argc, argv, "kv_store: words under keys, by active messages",
                       {{"--keys", &keys, 1, 10'000'000, "keys that each process stores"}});
  const auto context = native::join_job();
  const auto count = static_cast<std::uint64_t>(keys);
  const int size = context->size(), previous = (context->rank() + size - 1) % size;
  const auto first_of = [&](int rank) { return static_cast<std::uint64_t>(rank) * count; };

  Store store(*context);
  const std::uint64_t own = first_of(context->rank()), theirs = first_of(previous);
  for (std::uint64_t key = own; key < own + count; ++key) store.put(key, value_of(key));
  store.settle();
  for (std::uint64_t key = theirs; key < theirs + count; ++key) store.get(key);
  store.settle();
  long wrong = keys - static_cast<long>(store.found().size());
  for (const auto& [key, value] : store.found()) wrong += value != value_of(key);
  native::meet(*context);
  if (context->rank() == 0)
    std::printf("kv_store: %d processes, %ld keys each, %ld wrong\n", size, keys, wrong);
  return wrong == 0 ? 0 : 1;
}
