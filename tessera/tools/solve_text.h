// `tessera solve`: a problem of choices from a file, solved.
#pragma once

#include <string>

namespace tessera::tools {

struct SolveCommand {
  std::string path;    // the file of the problem, see solver/problem/problem_json.h
  double timeout = 0;  // seconds, those for reading the file among them; 0: none
  int rounds = 0;      // 0: as many as the timeout allows, or SolveOptions::rounds without one
  double gap = 0;
  uint64_t seed = 0;
  bool json = false;
  bool progress = false;  // a line for each improvement, on standard error
  bool profile = false;   // where the time went, on standard error
};
struct SolveText {
  std::string text;
  bool solved = false;  // there are choices
};
// For people, where the last line is the choices, "[0, 3, 1]", as the contest wants them, or "[]"; or one JSON object,
// which has them as "choices" where there is a solution. Throws IoError and
// InvalidArgument where the file cannot be read.
SolveText solve_text(const SolveCommand& command);

}  // namespace tessera::tools
