// `larklane info --json` (info.hpp).

#include <nlohmann/json.hpp>

#include "info.hpp"
#include "measure/json_text.hpp"

namespace larklane::tools {
namespace {

void add_providers(const Facts& facts, nlohmann::ordered_json* root) {
  for (const Ability& ability : facts.abilities) {
    (*root)["providers"].push_back(
        {{"name", ability.name}, {"available", ability.available}, {"note", ability.note}});
  }
}

}  // namespace

std::string to_json(const Facts& facts) {
  nlohmann::ordered_json root;
  root["schema"] = 1;
  root["version"] = LARKLANE_VERSION;
  if (facts.peer) {
    const PeerFacts& peer = *facts.peer;
    root["peer"] = {{"asked", peer.asked},     {"where", peer.where},   {"why", peer.why},
                    {"goes_by", peer.goes_by}, {"reason", peer.reason}, {"change", peer.change}};
    add_providers(facts, &root);
    return bench::json_text(root);
  }
  if (!facts.options_only) {
    root["folder"] = facts.folder;
    for (const Family& family : facts.families) {
      root["families"].push_back(
          {{"name", family.name}, {"title", family.title}, {"library", family.library}});
    }
    root["mpi"] = facts.mpi;
    add_providers(facts, &root);
    root["lanes"] = facts.lanes;
    auto& owned = root["p2p_auto"];
    owned = nlohmann::ordered_json::array();
    for (const OwnedByAuto& row : facts.owned_by_auto)
      owned.push_back({{"mpi", row.mpi},
                       {"thread_level", row.thread_level},
                       {"hosts", row.hosts},
                       {"record", row.record}});
    auto& crossover = root["crossover"];
    crossover["problem"] = facts.crossover.problem;
    crossover["points"] = nlohmann::ordered_json::array();
    for (const CrossoverPoint& point : facts.crossover.points) {
      nlohmann::ordered_json entry{{"bytes", point.bytes}, {"slots_ns", point.slots_ns}};
      if (point.attach_ns > 0) entry["attach_ns"] = point.attach_ns;
      crossover["points"].push_back(std::move(entry));
    }
    if (const auto bytes = facts.crossover.crossover_bytes()) {
      crossover["crossover_bytes"] = *bytes;
    }
  }
  if (!facts.options_only) {
    auto& tuning = root["tuning"];
    tuning = {{"fabric", larklane::model::kShmFabric},
              {"cpu", facts.host.cpu},
              {"cores", facts.host.cores},
              {"path", facts.tuning.path},
              {"problem", facts.tuning.problem},
              {"in_use", facts.tuning.tuning.has_value()}};
    if (facts.tuning.tuning) {
      tuning["measured"] = facts.tuning.tuning->measured;
      tuning["searched"] = facts.tuning.tuning->searched;
    }
  }
  for (const Config::Row& row : facts.config.rows()) {
    root["options"].push_back({{"name", row.name},
                               {"value", row.value_text},
                               {"source", source_name(row.source)},
                               {"default", row.default_text},
                               {"type", row.type},
                               {"range", row.range},
                               {"since", row.since},
                               {"doc", row.doc}});
  }
  root["problems"] = nlohmann::ordered_json::array();
  for (const Config::Problem& problem : facts.problems) {
    root["problems"].push_back({{"fatal", problem.fatal}, {"text", problem.text}});
  }
  return bench::json_text(root);
}

}  // namespace larklane::tools
