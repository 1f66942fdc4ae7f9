#pragma once
// Output of a run: JSON with every sample and the environment, CSV, and a table for people.
// docs/user/performance.md has the JSON layout.

#include <map>
#include <string>
#include <vector>

#include "machine.hpp"
#include "options.hpp"
#include "series.hpp"

namespace larklane::bench {

/// An allow-list: no entry names the host or its user.
struct Environment {
  std::string mpi;  ///< MPI_Get_library_version(), first line
  int ranks = 0, hosts = 0;
  std::vector<std::string> bindings;  ///< by rank: the processors that it may use, as ranges
  bool is_oversubscribed = false;     ///< a host has more threads than cores that they may use
  double timer_ns = 0, clock_error_ns = 0;
  bool flushes = false;         ///< --cold had an effect
  std::vector<int> grid;        ///< ranks along each axis; empty: no grid
  std::vector<int> neighbours;  ///< of each rank on it
  std::map<std::string, std::string> variables = listed_environment();
};

/// A way that gave no figures and ended the run.
struct Failure {
  std::string way;
  std::uint64_t bytes;
  std::string what;  ///< a sentence
};

struct Record {
  Options options;
  Environment environment;
  std::vector<Point> points;
  std::vector<Failure> failures;
};

/// Writes a temporary file, then renames it: a reader never sees a partial file.
/// @return the error; empty if there is none
std::string write_json(const Record& record, const std::string& path);
std::string write_csv(const Record& record, const std::string& path);

/// Lines that begin with '#', then one line for each way and size: OSU's layout with a spread.
std::string table_head(const Record& record);
std::string table_lines(const Record& record, const Point& point);

}  // namespace larklane::bench
