// Golden files: tests as text. A file holds cases; a case is a claim, an input (a graph's text, mostly), and
// commands with the whole output or refusal that each must give:
//
//   # What the file is about.
//
//   case: a product with one is dropped
//   graph g
//     input x f32[4]
//     ...
//     return y = %2
//   run: fold
//   gives:
//   graph g
//     input x f32[4]
//     return y = x
//   run: gradients x
//   refuses:
//   graph g has no output "x"
//
// Running a file and printing what came out gives the file again, or shows what has changed.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing_support {

struct GoldenRun {
  std::string command;  // "plan data=4 x=[data,_]"
  std::string output;
  bool refused = false;  // output is the message of an InvalidArgument
};

struct GoldenCase {
  std::string claim;
  std::string input;
  std::vector<GoldenRun> runs;
};

struct GoldenFile {
  std::string header;  // comments before the first case
  std::vector<GoldenCase> cases;
};

// Throws InvalidArgument naming `name` and the line that is not of the form above.
GoldenFile parse_golden(std::string_view text, const std::string& name);
std::string print(const GoldenFile& file);

// The text that a command makes of the input; an InvalidArgument that it throws is a refusal.
using GoldenCommand = std::function<std::string(const std::string& input, const std::string& command)>;
// The case with the outputs that the commands give now.
GoldenCase run_golden(const GoldenCase& golden, const GoldenCommand& command);

}  // namespace tessera::testing_support
