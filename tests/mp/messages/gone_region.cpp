// Rank 0 puts to and gets from memory of rank 1's that is registered no longer: each ends, once,
// and nothing is written, there or here.
//
//   gone_region alone|any [allocated]    alone: each ends with an error, and nothing else fails
//   with it, messages go on both ways; any: the connection may go with it, and a put may get no
//   notice. allocated: memory that the library allocates, which peers map
//
// Exit status: of program.hpp.

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::uint32_t kTag = 1;
constexpr std::size_t kWords = 1u << 14;
constexpr std::uint64_t kMine = 0x6d69'6e65;

class Place {
 public:
  explicit Place(Context& context)
      : context_(context), vci_(vci_of(context)), told_(queue_of(context)), words_(kWords, kMine) {}

  void send(const void* bytes, std::size_t count) {
    expect_ok(
        end_of("send", [&] { return post_send(vci_, peer(), kTag, bytes, count, options()); }));
  }
  void receive(void* bytes, std::size_t count) {
    expect_ok(
        end_of("receive", [&] { return post_recv(vci_, peer(), kTag, bytes, count, options()); }));
  }
  void lend(bool is_allocated) {
    std::uint64_t word = 0;
    {
      auto region =
          got(is_allocated ? context_.allocate_region(kWords * sizeof word)
                           : context_.register_region(words_.data(), kWords * sizeof word),
              "a region");
      const RemoteRegion remote = region.remote();
      send(&remote, sizeof remote);
      receive(&word, sizeof word);  // it has used it
    }
    send(&word, sizeof word);
  }
  RemoteRegion borrow() {
    RemoteRegion region{};
    receive(&region, sizeof region);
    std::uint64_t word = 0;
    for (const bool is_told : {true, false})  // the latter: by a store, if it is mapped
      expect_ok(
          end_of("put", [&] { return post_put(vci_, region, 0, &kMine, 8, options(is_told)); }));
    expect_ok(end_of("get", [&] { return post_get(vci_, region, 0, &word, 8, options()); }));
    if (word != kMine) fail(1, "payload");
    send(&word, sizeof word);
    receive(&word, sizeof word);  // it is gone
    return region;
  }
  void use_what_is_gone(const RemoteRegion& region, bool is_alone) {
    std::vector<std::uint64_t> words(kWords, 1);
    for (const std::size_t bytes : {std::size_t{8}, kWords * sizeof words[0]}) {
      for (const bool is_told : {true, false}) {
        const Status put = end_of("put", [&] {
          return post_put(vci_, region, 0, words.data(), bytes, options(is_told));
        });
        if (is_alone) expect_refused(put);
        expect_refused(end_of("get", [&] {
          return post_get(vci_, region, 0, words.data(), bytes, options(is_told));
        }));
      }
    }
    if (std::ranges::any_of(words, [](std::uint64_t word) { return word != 1; }))
      fail(1, "a get that has failed has written");
  }
  void expect_untouched() const {
    if (std::ranges::any_of(words_, [](std::uint64_t word) { return word != kMine; }))
      fail(1, "memory that is not registered any more was written");
  }
  void talk() {
    std::vector<std::uint64_t> words(kWords);
    fill(words, static_cast<std::uint64_t>(context_.rank()));
    if (context_.rank() == 0) send(words.data(), kWords * sizeof words[0]);
    receive(words.data(), kWords * sizeof words[0]);
    if (!is_filled(words, static_cast<std::uint64_t>(peer()))) fail(1, "payload of a message");
    fill(words, static_cast<std::uint64_t>(context_.rank()));
    if (context_.rank() == 1) send(words.data(), kWords * sizeof words[0]);
  }

 private:
  int peer() const { return 1 - context_.rank(); }
  PostOptions options(bool is_told = true) {
    PostOptions options;
    options.completion = &told_;
    options.signals_always = is_told;
    return options;
  }
  /// The end of the posted operation, or of the post.
  template <class Call>
  Status end_of(const std::string& what, Call&& call) {
    Result<Post> post = Post::retry;
    wait_for(vci_, what, [&] { return !(post = call()) || *post != Post::retry; });
    if (!post || *post == Post::done) return post.error();
    std::optional<Completion> completion;
    wait_for(vci_, what, [&] { return (completion = told_.pop()).has_value(); });
    return completion->status;
  }
  static void expect_ok(Status status) {
    if (!status.ok()) fail(1, std::string("an operation has failed: ") + errc_name(status.code()));
  }
  static void expect_refused(Status status) {
    if (status.ok()) fail(1, "memory that is gone was used");
  }

  Context& context_;
  Vci vci_;
  CompletionQueue told_;
  std::vector<std::uint64_t> words_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc >= 2 ? argv[1] : "";
  const bool is_allocated = argc == 3 && std::string_view(argv[2]) == "allocated";
  if (how != "alone" && how != "any") fail(3, "gone_region alone|any [allocated]");
  auto context = begin();
  Place place(*context);
  if (context->rank() == 0)
    place.use_what_is_gone(place.borrow(), how == "alone");
  else
    place.lend(is_allocated);
  if (how == "alone") place.talk();
  meet(*context);
  place.expect_untouched();
  return 0;
}
