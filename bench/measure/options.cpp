#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>

#include "base/parse.hpp"
#include "catalogue.hpp"
#include "noise.hpp"
#include "peer_library.hpp"

namespace larklane::bench {
namespace {

constexpr const char* kMessageExamples = R"(
Examples:
  larklane bench message-rate --threads 1,2,4 --sizes 8      Larklane's, without an MPI; a page at the end
  larklane bench message-rate --launcher "mpirun -n {processes}"       ... beside those of an MPI
  larklane launch -n 2 larklane bench message-latency --threads 2      started by hand
  mpirun -n 2 larklane bench message-rate --with native --json r.json  of an MPI

Way `shared`: threads have one lane together (or --lanes), or one communicator; `own`: one each; `everywhere`: processes instead of
threads, in a launch of 2 x --threads of them; `one-tag`: as `shared`, but the messages of all threads have one tag, too; `hints`: as
`shared`, in a communicator that tells an MPI that no receive has a wildcard; `funneled`: one thread for the messages of all. Without --threads outside of a launcher: 1, 2, 4 ... as cores allow.
)";

constexpr const char* kApplicationExamples = R"(
Examples:
  larklane bench bspmm --threads 1,2,4                       Larklane's, without an MPI; a page at the end
  larklane bench ebms --launcher "mpirun -n {processes}"     ... beside those of an MPI
  larklane launch -n 4 larklane bench stencil --threads 2    started by hand, in any number of processes from 2

Way `shared`: threads have one lane together (or --lanes), or one communicator and window; `own`: some of their own; `everywhere`: processes
instead of threads, --threads of them in the place of each; `funneled` (of stencil): one thread exchanges the edges of all. Without --threads outside of a launcher: 1, 2, 4 ... as cores allow.
)";

constexpr const char* kLanesExamples = R"(
Examples:
  larklane launch -n 1 larklane bench lanes --threads 2      posts alone: threads of one process, to itself
  larklane launch -n 2 larklane bench lanes --threads 2      whole exchanges, as message-rate
  larklane launch -n 1 larklane bench lanes --threads 2 --layout packed

Ways: `own`, a lane a thread; `single-threaded`, the same without locks; `shared`, one lane; lanes of their own, but `process-lock`:
whoever uses one has one lock of the process first, `one-pool`: operations of all come from one pool, `progress-all`: each turn serves
all, `progress-own`: only one's own; `nothing`: one lane, and all of that. There are as many lanes as threads, unless
LARKLANE_VCI_COUNT_MAX says less: then what needs more is refused.

Posts alone are sends that nobody hears of: --operation, --completion, --progress and --more-follow need two processes.
)";

constexpr const char* kExamples = R"(
Examples:
  mpirun -n 2 larklane bench perceived-bandwidth --threads 8 --noise uniform --json pb.json
  mpirun -n 2 larklane bench early-bird --sizes 64K:4M --partitions-per-thread 4 --cold
  mpirun -n 2 larklane bench recv-compute --recv-partitions 3 --noise trace:delays.json

--with native measures without Larklane; outside of a launcher both are measured in turns: larklane bench --help.

Noise presets:
)";

/// "64K" as bytes; 0 if malformed.
std::uint64_t bytes_of_text(const std::string& text) {
  return number_of(trimmed(text), kByteUnits).value_or(0);
}

/// CLI11's own checks accept "nan" as a number that is not negative.
CLI::Validator a_number() {
  const auto refuse_nan = [](const std::string& text) {
    return CLI::detail::to_lower(text).find("nan") == std::string::npos ? ""
                                                                        : text + " is no number";
  };
  return CLI::Validator(refuse_nan, "");
}

/// "A:B" (doubled from A to B), or "A,B,C".
std::string parse_sizes(const std::string& text, std::vector<std::uint64_t>* sizes) {
  std::string expected = "--sizes " + text + ": expected BYTES, FROM:TO or A,B,C, with K, M, G";
  sizes->clear();
  const auto colon = text.find(':');
  if (colon != std::string::npos) {
    const std::uint64_t from = bytes_of_text(text.substr(0, colon));
    const std::uint64_t to = bytes_of_text(text.substr(colon + 1));
    if (from == 0 || to < from) return expected;
    for (std::uint64_t size = from; size <= to && size >= from; size *= 2) sizes->push_back(size);
    return {};
  }
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    sizes->push_back(bytes_of_text(word));
    if (sizes->back() == 0) return expected;
  }
  return sizes->empty() ? expected : std::string();
}

/// "BYTES:PARTITIONS:ITERATIONS:WARMUP".
std::optional<PointShape> point_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string part; std::getline(words, part, ':');) parts.push_back(part);
  if (parts.size() != 4 || text.back() == ':') return std::nullopt;
  const auto bytes = number_of<std::uint64_t>(parts[0]);
  const auto partitions = number_of<std::uint32_t>(parts[1]);
  const auto iterations = number_of<std::uint32_t>(parts[2]);
  const auto warmup = number_of<std::uint32_t>(parts[3]);
  if (!bytes || !partitions || !iterations || !warmup) return std::nullopt;
  return PointShape{*bytes, *partitions, *iterations, *warmup};
}

/// Parses --points.
std::string parse_points(const std::vector<std::string>& words, Options* o) {
  for (const std::string& word : words) {
    const auto point = point_of(word);
    if (!point || point->partitions == 0 || point->iterations == 0 ||
        point->partitions % o->threads != 0 || point->bytes % point->partitions != 0 ||
        point->bytes == 0)
      return "--points " + word +
             ": expected BYTES:PARTITIONS:ITERATIONS:WARMUP, the bytes a multiple of the "
             "partitions, and these of the threads";
    o->points.push_back(*point);
  }
  if (!o->points.empty()) {
    o->sizes.clear();
    for (const PointShape& point : o->points) o->sizes.push_back(point.bytes);
    *o = o->at(0);
  }
  return {};
}

std::string check_messages(const Options& o) {
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 31;
  constexpr std::uint64_t kWorkersMax = 256;  // Gate::kWorkersMax
  if (std::ranges::count(o.ways, "one-tag") > 0) {
    if (o.operation != "send" && o.operation != "ssend")
      return "--ways one-tag: of --operation send or ssend, not " + o.operation;
    for (const std::uint64_t size : o.sizes)
      if (size < 8) return "size " + std::to_string(size) + ": --ways one-tag: of 8 bytes and more";
  }
  if (o.benchmark == "message-turns" && o.operation != "send")
    return "--operation " + o.operation + ": of message-turns: send";
  if (o.benchmark == "message-turns" && o.threads > kWorkersMax)
    return "--threads " + std::to_string(o.threads) + ": of message-turns at most " +
           std::to_string(kWorkersMax);
  for (const std::uint64_t size : o.sizes)
    if (size > kBytesMax / o.window / o.threads)
      return "size " + std::to_string(size) + ": --threads x --window of them are more than " +
             std::to_string(kBytesMax) + " bytes";
  return {};
}

/// Refuses a size that the application does not support, or that needs too many bytes in a process.
std::string check_application(const Options& o, SizeIs kind) {
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 30;
  const auto two = [](std::uint64_t below, std::uint64_t above) {
    return ": " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above);
  };
  for (const std::uint64_t size : o.sizes) {
    const std::string where = "size " + std::to_string(size) + ": ";
    std::uint64_t count = std::uint64_t{o.blocks} * o.threads;
    if (kind == SizeIs::edge) {
      if (size % 8 != 0)
        return where + "an edge is of whole cells of 8 bytes" + two(size / 8 * 8, size / 8 * 8 + 8);
      count = 2 * (size / 8) * o.threads;
    } else if (kind == SizeIs::tile) {
      const auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(size) / 8));
      if (8 * side * side != size)
        return where + "a tile of N x N doubles has 8 N N bytes" +
               two(8 * side * side, 8 * (side + 1) * (side + 1));
      count = std::uint64_t{o.blocks} * o.blocks;
    }
    if (size > kBytesMax / count)
      return where + std::to_string(count) + " of them in a process are more than " +
             std::to_string(kBytesMax) + " bytes: fewer" +
             (o.blocks > 0 ? " --blocks" : " --threads") + ", or smaller --sizes";
  }
  return {};
}

/// Opens the library of way `mpipcl`.
std::string open_mpipcl(const Benchmark& benchmark, Options& o) {
  const auto has_it = [](const std::vector<std::string>& ways) {
    return std::ranges::count(ways, "mpipcl") > 0;
  };
  if (!has_it(o.ways) || !has_it(listed(benchmark.further_ways))) return {};
  if (o.mpipcl.empty()) return "--ways mpipcl: --mpipcl FILE says where its library is";
  const std::string why = open_peer_library(o.mpipcl, kMpipclNames, o.mpipcl_calls);
  return why.empty() ? why : "--mpipcl: " + why;
}

std::string check(const Options& o, const Benchmark& benchmark) {
  std::string error;
  Noise::parse(o.noise, o.noise_percent, o.seed, &error);
  if (!error.empty()) return error;
  if (o.ways.empty()) return "--without: no way is left";
  if (o.operation == "am" && (o.completion == "counter" || o.completion == "synchronizer"))
    return "--completion " + o.completion +
           ": active messages bring buffers: queue or handler with --operation am";
  if (o.more_follow && o.operation != "send" && o.operation != "am")
    return "--more-follow: of --operation send or am, not " + o.operation;
  if (o.more_follow && o.completion == "synchronizer")
    return "--more-follow: not with --completion synchronizer: what signals always goes by itself";
  for (const std::string& way : o.ways)
    if (benchmark.is_of_lanes() && way == "everywhere" && o.ways.size() > 1)
      return "--ways everywhere: processes instead of threads: a launch of its own";
  if (std::ranges::count(o.ways, "funneled") > 0 && o.ways.size() > 1)
    return "--ways funneled: one thread for all: a launch of its own";
  if (benchmark.is_of_messages() && !o.count.empty() && o.threads_of_process() != 1)
    return "--count " + o.count + ": of --threads 1, not " + std::to_string(o.threads);
  if (benchmark.is_of_messages()) return check_messages(o);
  if (benchmark.is_of_lanes()) return check_application(o, benchmark.size_is);
  if (o.is_bound && o.threads != 2) return "--bound: of --threads 2";
  if (!o.count.empty() && o.ways.size() != 1) return "--count " + o.count + ": of one way";
  for (const std::uint64_t size : o.points.empty() ? o.sizes : std::vector<std::uint64_t>()) {
    const std::uint64_t bytes = o.bytes_of(size);
    const std::string where = "size " + std::to_string(bytes) + ": ";
    if (bytes % o.send_partitions() != 0)
      return where + "not a multiple of the " + std::to_string(o.send_partitions()) +
             " send partitions (--threads x --partitions-per-thread): at least one byte each";
    if (bytes % o.receive_partitions() != 0)
      return where + "not a multiple of the " + std::to_string(o.receive_partitions()) +
             " receive partitions (--recv-partitions)";
  }
  return {};
}

/// Arguments that are text, or in another unit than in Options.
struct Words {
  std::string sizes;
  double compute_us = 10000, late_us = 0, hold_us = 300;
  std::uint32_t partitions = 0;
  std::vector<std::string> points;
  std::vector<std::string> without;
};

/// Sets the defaults of `benchmark` for each argument that `sub` was not given. An argument that
/// the benchmark does not support is ignored and not recorded: `larklane bench all` passes the same
/// arguments to all benchmarks.
void settle(const Benchmark& benchmark, const CLI::App& sub, Options& o, Words& words) {
  o.benchmark = benchmark.name;
  if (sub.get_option("--sizes")->empty()) words.sizes = benchmark.sizes;
  const CLI::Option* noise = sub.get_option_no_throw("--noise");
  if (noise == nullptr || noise->empty()) o.noise = benchmark.noise;
  if (o.ways.empty()) o.ways = listed(benchmark.ways);
  std::erase_if(
      o.ways, [&](const std::string& way) { return std::ranges::count(words.without, way) != 0; });
  o.compute_ns = words.compute_us * 1e3;
  if (!benchmark.computes()) {
    o.compute_ns = 0;
    o.noise = "none";
  }
  if (sub.get_option("--threads")->empty())
    o.threads = benchmark.is_of_lanes() || benchmark.kind == Kind::steps ? 1 : Options().threads;
  if (benchmark.window > 0 && sub.get_option("--window")->empty()) o.window = benchmark.window;
  if (benchmark.window > 0)
    for (const char* name :
         {"--operation", "--completion", "--progress", "--more-follow", "--count"})
      if (!sub.get_option(name)->empty()) o.of_exchanges.emplace_back(name);
  const CLI::Option* blocks = sub.get_option_no_throw("--blocks");
  if (blocks == nullptr || blocks->empty()) o.blocks = benchmark.blocks;
  if (!benchmark.has_partitions()) {
    if (!benchmark.is_of_lanes()) o.threads = 1;
    o.partitions_per_thread = 1;
    o.recv_partitions = 0;
  }
  if (!benchmark.is_of_lanes() && benchmark.messages == 1 && words.partitions > 0)
    o.partitions_per_thread = std::max(words.partitions / o.threads, 1u);
  o.late_ns = words.late_us * 1e3;
  o.hold_ns = words.hold_us * 1e3;
  if (!benchmark.computes() || benchmark.is_pattern()) o.neighbours = 1;
  if (!benchmark.computes()) o.compute_split = ComputeSplit::thread;
  if (benchmark.is_pattern()) o.compute_split = ComputeSplit::partition;
}

/// Options of messages between threads: senders, operations and lanes.
void add_messages(CLI::App* sub, const Benchmark& benchmark, Options& o, Words& words) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return sub->add_option(name, value, what)->capture_default_str();
  };
  o.threads = 1;
  o.window = benchmark.window;  // shown as default
  add("--sizes", words.sizes, "bytes of a message: N, FROM:TO (doubled), or A,B,C; with K, M, G");
  add("--threads", o.threads, "that send in each process, and as many that receive")
      ->check(CLI::Range(1, 256));
  add("--window", o.window, "messages of a thread before it waits for an answer")
      ->check(CLI::Range(1, 65536));
  add("--lanes", o.lanes, "lanes (communicators) that the threads of way `shared` have together")
      ->check(CLI::Range(1, 256));
  add("--operation", o.operation,
      "send, put (a window of them, then a message), of an MPI alone ssend (synchronous), and, not "
      "of "
      "an MPI, put-signal (each tells of itself) and am (active messages)")
      ->check(CLI::IsMember({"send", "put", "put-signal", "am", "ssend"}));
  add("--level", o.level, "of threads, that an MPI is asked for; below multiple: of one thread")
      ->check(CLI::IsMember({"single", "funneled", "serialized", "multiple"}));
  add("--completion", o.completion,
      "what hears of ends: queue, counter, synchronizer, handler; not of an MPI")
      ->check(CLI::IsMember({"queue", "counter", "synchronizer", "handler"}));
  sub->add_flag("--more-follow", o.more_follow,
                "each message of a window but the last says that more follow: over a network they "
                "travel together; not of an MPI");
  add("--progress", o.progress,
      "made by workers while they wait, or by a dedicated thread of each process; not of an MPI")
      ->check(CLI::IsMember({"workers", "dedicated"}));
  add("--count", o.count,
      "system-calls: also counts those for a message, by both processes and by each; one thread "
      "each; not of an MPI")
      ->check(CLI::IsMember({"system-calls"}));
  if (benchmark.kind == Kind::lanes)
    add("--layout", o.layout, "of lanes: on cache lines of their own, or packed")
        ->check(CLI::IsMember({"own", "packed"}));
}

/// Options of applications: their size and their lanes.
void add_application(CLI::App* sub, const Benchmark& benchmark, Options& o, Words& words) {
  const auto add = [&](const char* name, auto& value, const std::string& what) {
    return sub->add_option(name, value, what)->capture_default_str();
  };
  o.threads = 1;
  o.blocks = benchmark.blocks;  // shown as default
  add("--sizes", words.sizes,
      std::string("bytes of ") + benchmark.sizes_are +
          "; N, FROM:TO (doubled), or A,B,C; with K, M, G");
  add("--threads", o.threads, "that work in each process")->check(CLI::Range(1, 256));
  add("--lanes", o.lanes,
      "lanes (communicators, windows) that the threads of way `shared` have together")
      ->check(CLI::Range(1, 256));
  if (benchmark.blocks > 0)
    add("--blocks", o.blocks, benchmark.blocks_are)->check(CLI::Range(1, 256));
}

/// Options of the number of threads and partitions.
void add_shape(CLI::App* sub, Options& o, Words& words) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return sub->add_option(name, value, what)->capture_default_str();
  };
  const std::map<std::string, Order> orders{{"ascending", Order::ascending},
                                            {"descending", Order::descending},
                                            {"strided", Order::strided},
                                            {"random", Order::random}};
  const std::map<std::string, Scaling> scalings{{"strong", Scaling::strong},
                                                {"weak", Scaling::weak}};
  add("--sizes", words.sizes, "bytes of a message: N, FROM:TO (doubled), or A,B,C; with K, M, G");
  add("--threads", o.threads, "threads that compute and send")->check(CLI::Range(1, 4096));
  add("--partitions-per-thread", o.partitions_per_thread, "send partitions of each thread")
      ->check(CLI::Range(1, 65536));
  add("--partitions", words.partitions, "send partitions of all threads; 0: as those of each say")
      ->check(CLI::Range(0, 1 << 24));
  add("--neighbours", o.neighbours, "ranks that are sent to, a message each; not of patterns")
      ->check(CLI::Range(1, 1000));
  add("--recv-partitions", o.recv_partitions, "receive partitions; 0: as the sender");
  sub->add_option("--scaling", o.scaling,
                  "strong (sizes of messages) or weak (of a thread's share)")
      ->transform(CLI::CheckedTransformer(scalings, CLI::ignore_case));
  sub->add_option("--order", o.order,
                  "of a thread's Pready: ascending, descending, strided, random")
      ->transform(CLI::CheckedTransformer(orders, CLI::ignore_case));
}

/// Options of benchmarks that measure single steps of a round.
void add_steps(CLI::App* sub, Options& o, Words& words) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return sub->add_option(name, value, what)->capture_default_str();
  };
  add("--late-us", words.late_us,
      "that the last thread computes longer, or between start and the first partition")
      ->check(CLI::NonNegativeNumber & a_number());
  add("--hold-us", words.hold_us, "between the first partition and the others")
      ->check(CLI::NonNegativeNumber & a_number());
  sub->add_flag("--bound", o.is_bound,
                "two threads, each on a core, end computing together, but for the first, which is "
                "late; the receiver shares the second one's");
  sub->add_flag("--live", o.is_live, "a partitioned channel is there while MPI_Isend is timed");
  add("--count", o.count, "what a round gives an RDMA device to do, of both ranks")
      ->check(CLI::IsMember({"packets", "doorbells"}));
  sub->add_option("--points", words.points,
                  "instead of sizes: BYTES:PARTITIONS:ITERATIONS:WARMUP, separated by commas")
      ->delimiter(',');
}

/// Options of the threads' work before they send.
void add_work(CLI::App* sub, Options& o, Words& words) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return sub->add_option(name, value, what)->capture_default_str();
  };
  const std::map<std::string, ComputeSplit> splits{{"thread", ComputeSplit::thread},
                                                   {"partition", ComputeSplit::partition}};
  add("--compute-us", words.compute_us, "what each thread computes in a round, microseconds")
      ->check(CLI::NonNegativeNumber & a_number());
  sub->add_option(
         "--compute-split", o.compute_split,
         "thread (computes everything before it sends) or partition (each before it is sent)")
      ->transform(CLI::CheckedTransformer(splits, CLI::ignore_case));
  add("--noise", o.noise,
      "none, single, uniform, gaussian, exponential, periodic:HZ:US, trace:FILE (delays of a "
      "profile, or what `larklane noise` recorded), a preset");
  add("--noise-percent", o.noise_percent, "amount of noise, of the compute time")
      ->check(CLI::NonNegativeNumber & a_number());
  add("--seed", o.seed, "of the noise and of the random order");
  sub->add_flag("--cold", o.cold, "message buffers are flushed from the caches before each round");
}

/// Options of the method: ways, rounds and output.
void add_method(CLI::App* sub, const Benchmark& benchmark, Options& o, Words& words) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return sub->add_option(name, value, what)->capture_default_str();
  };
  sub->add_option("--ways", o.ways, "alternatives to measure, the first is the baseline")
      ->delimiter(',')
      ->default_str(benchmark.ways);
  sub->add_option("--without", words.without, "of them, leave these out")->delimiter(',');
  add("--iterations", o.iterations, "measured rounds of each point")->check(CLI::Range(1, 1000000));
  add("--warmup", o.warmup, "rounds before them")->check(CLI::Range(0, 1000000));
  add("--budget", o.budget_s, "seconds for everything: repetitions are dropped first; 0: no limit")
      ->check(CLI::NonNegativeNumber & a_number());
  add("--limit", o.limit_s, "seconds after which a round counts as hung")
      ->check(CLI::PositiveNumber & a_number());
  if (!benchmark.is_of_lanes())
    add("--traces", o.traces, "rounds of each way whose events are kept in the JSON");
  sub->add_option("--json", o.json, "write samples and environment there");
  sub->add_option("--csv", o.csv, "write the samples there");
  sub->add_option("--variant", o.variant)->group("");
  if (!benchmark.is_of_lanes()) {
    sub->add_option(
        "--mpipcl", o.mpipcl,
        "shared library of MPIPCL, for way mpipcl: built with the MPI that is measured");
    sub->add_flag("--bare", o.is_bare,
                  "no guard rounds and no second series of the first way: so many rounds alone");
  }
  sub->add_flag("--quiet", o.quiet, "no progress");
}

}  // namespace

bool Options::is_everywhere() const { return ways == std::vector<std::string>{"everywhere"}; }

bool Options::is_funneled() const { return ways == std::vector<std::string>{"funneled"}; }

std::uint32_t Options::threads_of_process() const {
  if (is_everywhere()) return 1;
  return is_funneled() && find_benchmark(benchmark)->is_of_messages() ? 1 : threads;
}

int parse_options(int argc, char** argv, bool print, Options* options) {
  CLI::App app{"Micro-benchmarks of partitioned communication against its alternatives."};
  app.name("larklane bench");
  app.require_subcommand(1);
  app.footer(kExamples + noise_presets());
  Options& o = *options;
  Words words;
  for (const Benchmark& benchmark : kBenchmarks) {
    words.sizes = benchmark.sizes;
    o.noise = benchmark.noise;
    o.threads = Options().threads;
    CLI::App* sub = app.add_subcommand(benchmark.name, benchmark.what);
    if (benchmark.window > 0) {
      sub->footer(benchmark.kind == Kind::lanes ? kLanesExamples : kMessageExamples);
      add_messages(sub, benchmark, o, words);
    } else if (benchmark.is_of_lanes()) {
      sub->footer(kApplicationExamples);
      add_application(sub, benchmark, o, words);
    } else {
      add_shape(sub, o, words);
      if (benchmark.kind == Kind::steps)
        add_steps(sub, o, words);
      else
        add_work(sub, o, words);
    }
    add_method(sub, benchmark, o, words);
  }
  const std::string word = argc > 1 ? argv[1] : "";
  if (!word.empty() && !word.starts_with("-") && find_benchmark(word) == nullptr) {
    if (print) std::fprintf(stderr, "larklane bench: %s\n", unknown_benchmark(word).c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int status = app.exit(error, out, err);
    if (print) std::fputs(out.str().c_str(), stdout), std::fputs(err.str().c_str(), stderr);
    return status == 0 ? 0 : 2;
  }
  const CLI::App* chosen = app.get_subcommands().front();
  const Benchmark& benchmark = *find_benchmark(chosen->get_name());
  settle(benchmark, *chosen, o, words);
  std::string problem = parse_sizes(words.sizes, &o.sizes);
  if (problem.empty()) problem = parse_points(words.points, &o);
  if (problem.empty()) problem = check(o, benchmark);
  if (problem.empty()) problem = open_mpipcl(benchmark, o);
  if (problem.empty()) return -1;
  if (print) std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
  return 2;
}

}  // namespace larklane::bench
