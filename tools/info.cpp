#include "info.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/mpi_choices.h"
#include "base/parse.hpp"

namespace larklane::tools {
namespace {

constexpr std::size_t kColumns = 100;

/// Words of `text`, indented, lines at most kColumns long.
void print_wrapped(std::string_view text, std::size_t indent) {
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column != 0 && column + 1 + end > kColumns) {
      std::printf("\n");
      column = 0;
    }
    const int blanks = static_cast<int>(column == 0 ? indent : 1);
    std::printf("%*s%.*s", blanks, "", static_cast<int>(end), text.data());
    column += static_cast<std::size_t>(blanks) + end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::printf("\n");
}

void print_families(const Facts& facts) {
  std::printf("\nMPI families (libraries in %s)\n", facts.folder.c_str());
  for (const Family& family : facts.families) {
    std::printf("  %-6s %-38s %s\n", family.name.c_str(), family.title.c_str(),
                family.library.empty()
                    ? "not built: no compiler wrapper of it was found when Larklane was configured"
                    : family.library.c_str());
  }
  if (facts.mpi.empty()) {
    std::printf("  LARKLANE_MPI is not set: the family of each program is found by itself\n");
  } else {
    std::printf("  LARKLANE_MPI is %s (accepted: %s)\n", facts.mpi.c_str(),
                LARKLANE_MPI_CHOICES_TEXT);
  }
}

void print_abilities(const Facts& facts) {
  std::printf("\nProviders\n");
  for (const Ability& ability : facts.abilities) {
    std::printf("  %-18s %-4s%s%s\n", ability.name.c_str(), ability.available ? "yes" : "no",
                ability.note.empty() ? "" : " ", ability.note.c_str());
  }
}

void print_lanes(const Facts& facts) {
  std::printf("\nLanes\n");
  print_wrapped(facts.lanes, 2);
}

void print_messages(const Facts& facts) {
  std::printf("\nOrdinary point-to-point messages (option p2p = %s)\n", facts.config.p2p.c_str());
  if (facts.owned_by_auto.empty())
    print_wrapped("`auto` owns no world: none has been measured yet", 2);
  for (const OwnedByAuto& row : facts.owned_by_auto)
    std::printf("  auto owns  %s, %s, %s: %s\n", row.mpi.c_str(), row.thread_level.c_str(),
                row.hosts.c_str(), row.record.c_str());
}

void print_peer(const PeerFacts& peer) {
  std::printf("Pairs of this process with %s\n", peer.asked.c_str());
  const auto print = [](const char* name, const std::string& what, const std::string& why) {
    std::printf("  %s\n", name);
    print_wrapped(what + (why.empty() ? "" : ": " + why), 6);
  };
  print("where it is", peer.where, peer.why);
  print("what they go by", peer.goes_by, peer.reason);
  if (!peer.change.empty()) print("how to change that", peer.change, "");
}

/// @param attach_from  bytes from which on attach is faster
void print_slot_advice(std::size_t attach_from, std::size_t slot_max) {
  std::string text = "attach is faster from " + number_text(attach_from, kByteUnits) +
                     " on, one partition at a time; shm_slot_bytes_max is " +
                     number_text(slot_max, kByteUnits);
  if (slot_max >= attach_from) {
    text +=
        ". More may be right: in a slot a partition leaves as soon as it is ready, by attach with "
        "its group. To know, time a program of yours";
  } else if (slot_max < attach_from / 2) {
    text += ". Time a program of yours";
  }
  const bool fits = slot_max < attach_from && slot_max >= attach_from / 2;
  if (!fits)
    text += " with LARKLANE_SHM_SLOT_BYTES_MAX=" + number_text(attach_from / 2, kByteUnits);
  print_wrapped(text, 2);
}

void print_crossover(const Facts& facts) {
  std::printf(
      "\nTime to move a partition between two processes here, in microseconds (median of at least "
      "%d; "
      "noisy on a busy machine)\n",
      kCrossoverSamplesMin);
  std::printf("  %8s %10s %10s\n", "bytes", "slots", "attach");
  for (const CrossoverPoint& point : facts.crossover.points) {
    std::printf("  %8s %10.2f ", number_text(point.bytes, kByteUnits).c_str(),
                point.slots_ns / 1000);
    if (point.attach_ns > 0) {
      std::printf("%10.2f\n", point.attach_ns / 1000);
    } else {
      std::printf("%10s\n", "-");
    }
  }
  if (!facts.crossover.problem.empty()) {
    std::printf("  not measured: %s\n", facts.crossover.problem.c_str());
  } else if (const auto bytes = facts.crossover.crossover_bytes()) {
    print_slot_advice(*bytes, facts.config.shm_slot_bytes_max);
  } else {
    std::printf("  slots are faster at every size\n");
  }
}

void print_tuning(const Facts& facts) {
  const std::string &path = facts.tuning.path, &problem = facts.tuning.problem;
  const auto& tuning = facts.tuning.tuning;
  std::printf("\nTuning (policies table and ploggp; fabric shm, %s, %u cores)\n",
              facts.host.cpu.c_str(), facts.host.cores);
  if (!problem.empty()) {
    print_wrapped(problem, 2);
  } else if (path.empty()) {
    print_wrapped(facts.config.tuning == "off" ? "off: option tuning"
                                               : "no place for the file: HOME is not set",
                  2);
  } else if (!tuning) {
    print_wrapped("not measured yet: `larklane tune` would write " + path, 2);
  } else {
    std::printf("  file      %s\n", path.c_str());
    if (!tuning->measured.empty())
      std::printf("  measured  %s: LogGP, %zu ranges of sizes\n", tuning->measured.c_str(),
                  tuning->ranges.size());
    if (!tuning->searched.empty())
      std::printf("  searched  %s: best numbers of groups, %zu entries\n", tuning->searched.c_str(),
                  tuning->entries.size());
  }
}

const char* unit_of(std::string_view type) {
  if (type == "bytes") return "bytes (units K, M, G, T)";
  if (type == "nanos") return "nanoseconds (units ns, us, ms, s)";
  if (type == "count") return "a number";
  return "";
}

void print_options(const Facts& facts) {
  std::printf(
      "\nOptions (--option NAME=VALUE, or LARKLANE_NAME=VALUE in the environment, or a line in the "
      "file LARKLANE_CONFIG)\n");
  for (const Config::Row& row : facts.config.rows()) {
    const char* const unit = unit_of(row.type);
    std::printf("\n  %.*s = %s   from: %s; default: %.*s; accepted: %.*s%s%s\n",
                static_cast<int>(row.name.size()), row.name.data(), row.value_text.c_str(),
                source_name(row.source), static_cast<int>(row.default_text.size()),
                row.default_text.data(), static_cast<int>(row.range.size()), row.range.data(),
                *unit == '\0' ? "" : " ", unit);
    print_wrapped(row.doc, 6);
  }
}

Facts collect(bool options_only) {
  Facts facts;
  facts.options_only = options_only;
  auto config = Config::load(&facts.problems);
  if (config) facts.config = *config;
  if (options_only) return facts;
  const Place place = Place::find();
  facts.folder = place.folder.string();
  for (const std::string_view name : kFamilies) {
    facts.families.push_back(
        {std::string(name), std::string(family_title(name)), place.library(name).string()});
  }
  facts.mpi = environment("LARKLANE_MPI");
  facts.abilities = probe(facts.folder, facts.config);
  facts.lanes = describe_lanes(facts.config);
#define LARKLANE_P2P_AUTO(mpi, thread_level, hosts, record) \
  facts.owned_by_auto.push_back({mpi, thread_level, hosts, record});
#include "base/p2p_auto.def"
#undef LARKLANE_P2P_AUTO
  facts.crossover = measure_crossover();
  facts.host = larklane::model::this_host();
  facts.tuning =
      larklane::model::find_tuning(facts.config.tuning, larklane::model::kShmFabric, facts.host);
  return facts;
}

/// The facts about one peer. @param[out] problem  why nothing connects it; else empty
Facts collect_peer(const std::string& asked, std::string* problem) {
  Facts facts;
  auto config = Config::load(&facts.problems);
  if (config) facts.config = *config;
  facts.folder = Place::find().folder.string();
  facts.peer = find_peer(asked, facts.config, facts.folder, problem);
  if (problem->empty() && facts.peer->is_told) facts.abilities = probe(facts.folder, facts.config);
  return facts;
}

int report_problems(const Facts& facts) {
  bool fatal = false;
  for (const Config::Problem& problem : facts.problems) {
    std::fprintf(stderr, "larklane info: %s%s\n",
                 problem.fatal ? "" : "warning: ", problem.text.c_str());
    fatal |= problem.fatal;
  }
  return fatal ? 2 : 0;
}

int info_of_peer(const InfoRequest& request) {
  std::string problem;
  const Facts facts = collect_peer(request.peer, &problem);
  if (!problem.empty()) {
    std::fprintf(stderr, "larklane info: --peer %s: %s\n", request.peer.c_str(), problem.c_str());
    return 2;
  }
  if (facts.peer->is_told && request.json) {
    std::fputs(to_json(facts).c_str(), stdout);
  } else if (facts.peer->is_told) {
    print_peer(*facts.peer);
    print_abilities(facts);
  }
  return report_problems(facts);
}

}  // namespace

const char* source_name(Config::Source source) {
  switch (source) {
    case Config::Source::default_value:
      return "default";
    case Config::Source::file:
      return "file";
    case Config::Source::environment:
      return "environment";
    case Config::Source::program:
      return "program";
  }
  return "";
}

int info(const InfoRequest& request) {
  if (!request.peer.empty()) return info_of_peer(request);
  const Facts facts = collect(request.options_only);
  if (request.json) {
    std::fputs(to_json(facts).c_str(), stdout);
  } else {
    std::printf("Larklane %s\n", LARKLANE_VERSION);
    if (!facts.options_only) {
      print_families(facts);
      print_abilities(facts);
      print_lanes(facts);
      print_messages(facts);
      print_crossover(facts);
      print_tuning(facts);
    }
    print_options(facts);
  }
  return report_problems(facts);
}

}  // namespace larklane::tools
