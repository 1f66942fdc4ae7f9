/* work_stealing: each process has a list of tasks, of very different lengths. A process that has
 * finished its own tasks takes tasks of the others.
 *
 * Shows atomics on memory of other processes. A process takes a task by fetch-and-add on its
 * owner's counter, which the owner's lane executes when it makes progress. Compare-and-swap keeps
 * the largest result. Each process reports to rank 0 by an active message.
 *
 * Checks itself: every task was done once, and the largest result is known. Exit status 1 if not.
 *
 *     larklane launch -n 4 ./work_stealing --tasks 2000
 */
#include <algorithm>
#include <cstddef>
#include <vector>

#include "native.hpp"

namespace {

using larklane::Completion;
using larklane::CompletionQueue;
using larklane::PostOptions;
using larklane::RemoteRegion;
using larklane::Synchronizer;

/// Memory that other processes change: the number of taken tasks and, on rank 0, the largest
/// result.
struct alignas(64) Shared {
  std::uint64_t taken = 0, largest = 0;
};
struct Report {
  std::uint64_t tasks = 0, stolen = 0, sum = 0;
};

/// A task's result: steps of a generator, more for a larger number.
std::uint64_t work(std::uint64_t task) {
  std::uint64_t state = task + 1;
  for (std::uint64_t i = 0; i < task; ++i)
    state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 8;
}

class Worker {
 public:
  Worker(larklane::Context& context, std::uint64_t tasks)
      : context_(context),
        vci_(native::must(context.create_vci(), "create_vci")),
        over_(native::must(Synchronizer::create(context.completions(), 1), "synchronizer")),
        reports_(native::must(CompletionQueue::create(context.completions()), "queue")),
        to_reports_(native::must(reports_.register_remote(), "register_remote")),
        region_(native::must(context.register_region(&shared_, sizeof shared_), "region")),
        tasks_(tasks) {
    all_ = exchange(region_.remote());
  }

  /// Does its own tasks, then the others'.
  Report run() {
    Report report;
    std::uint64_t largest = 0;
    for (int i = 0; i < context_.size(); ++i) {
      const int owner = (context_.rank() + i) % context_.size();
      for (;;) {
        const std::uint64_t task = fetch_add(all_[std::size_t(owner)], offsetof(Shared, taken), 1);
        if (task >= tasks_of(owner)) break;
        const std::uint64_t result = work(task);
        largest = std::max(largest, result);
        report.sum += result;
        ++report.tasks;
        report.stolen += i > 0;
      }
    }
    keep_largest(largest);
    return report;
  }
  /// @return on rank 0: the sum of all reports; on others: an empty report
  Report collect(const Report& own) {
    native::until_posted(vci_, [&] { return post_am(vci_, 0, to_reports_, 0, &own, sizeof own); });
    Report all;
    for (int left = context_.rank() == 0 ? context_.size() : 0; left > 0;) {
      vci_.progress();
      const auto completion = reports_.pop();
      if (!completion) continue;
      native::must(completion->status, "report");
      Report one;
      std::memcpy(&one, completion->buffer, sizeof one);
      larklane::free_buffer(completion->buffer);
      all.tasks += one.tasks;
      all.stolen += one.stolen;
      all.sum += one.sum;
      --left;
    }
    return all;
  }
  /// Call on rank 0, when all processes have reported.
  bool is_right(const Report& all) const {
    Report wanted;
    std::uint64_t largest = 0;
    for (int rank = 0; rank < context_.size(); ++rank)
      for (std::uint64_t task = 0; task < tasks_of(rank); ++task, ++wanted.tasks) {
        wanted.sum += work(task);
        largest = std::max(largest, work(task));
      }
    return all.tasks == wanted.tasks && all.sum == wanted.sum && shared_.largest == largest;
  }

 private:
  /// The number of a rank's tasks: lower ranks have more.
  std::uint64_t tasks_of(int rank) const { return rank < 32 ? tasks_ >> (2 * rank) : 0; }

  /// Waits until an operation completes. Makes progress, so it serves other processes, too.
  template <class Call>
  void complete(Call&& post) {
    PostOptions options;
    options.completion = &over_;
    options.signals_always = true;
    native::until_posted(vci_, [&] { return post(options); });
    native::progress_until(vci_, [&] { return over_.test(); });
    native::must(over_.completions().front().status, "operation");
    native::must(over_.reset(), "reset");
  }
  std::uint64_t fetch_add(const RemoteRegion& region, std::uint64_t offset, std::uint64_t value) {
    std::uint64_t before = 0;
    complete([&](const PostOptions& options) {
      return post_fetch_add(vci_, region, offset, value, &before, options);
    });
    return before;
  }
  void keep_largest(std::uint64_t largest) {
    std::uint64_t expected = 0, before = 0;
    for (; expected < largest; expected = before) {
      complete([&](const PostOptions& options) {
        return post_compare_swap(vci_, all_[0], offsetof(Shared, largest), expected, largest,
                                 &before, options);
      });
      if (before == expected) return;
    }
  }
  /// Each process's region, by rank.
  std::vector<RemoteRegion> exchange(RemoteRegion own) {
    const int size = context_.size();
    std::vector<RemoteRegion> all(static_cast<std::size_t>(size));
    auto received =
        native::must(Synchronizer::create(context_.completions(), std::uint32_t(size)), "create");
    PostOptions options;
    options.completion = &received;
    options.signals_always = true;
    for (int rank = 0; rank < size; ++rank)
      native::until_posted(vci_, [&] {
        return post_recv(vci_, rank, 0, &all[std::size_t(rank)], sizeof own, options);
      });
    for (int rank = 0; rank < size; ++rank)
      native::until_posted(vci_, [&] { return post_send(vci_, rank, 0, &own, sizeof own); });
    native::progress_until(vci_, [&] { return received.test(); });
    for (const Completion& one : received.completions()) native::must(one.status, "regions");
    return all;
  }

  larklane::Context& context_;
  larklane::Vci vci_;
  Synchronizer over_;
  CompletionQueue reports_;
  const larklane::RemoteCompletion to_reports_;
  Shared shared_;
  larklane::Region region_;
  const std::uint64_t tasks_;
  std::vector<RemoteRegion> all_;
};

}  // namespace

int main(int argc, char** argv) {
  long tasks = 2000;
  native::read_options(argc, argv, "work_stealing: tasks taken from other processes by atomics",
                       {{"--tasks", &tasks, 1, 1'000'000, "of rank 0; each rank has a quarter"}});
  const auto context = native::join_job();
  Worker worker(*context, static_cast<std::uint64_t>(tasks));
  native::meet(*context);
  const Report own = worker.run();
  const Report all = worker.collect(own);
  native::meet(*context);  // until then other processes may search for tasks here
  if (context->rank() != 0) return 0;
  const bool is_right = worker.is_right(all);
  std::printf("work_stealing: %d processes, %llu tasks, %llu of them stolen: %s\n", context->size(),
              static_cast<unsigned long long>(all.tasks),
              static_cast<unsigned long long>(all.stolen), is_right ? "right" : "wrong");
  return is_right ? 0 : 1;
}
