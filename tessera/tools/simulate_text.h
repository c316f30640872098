// `tessera simulate`: what a train step would cost on machines that a profile describes.
#pragma once

#include <string>

#include "tessera/tools/arguments/stages_command.h"
#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

struct SimulateOptions {
  StepOptions step;
  MachineOptions machine;
  bool json = false;
  StagesCommand stages;  // of a pipeline; `stages` empty: none
  std::string trace;     // a file for the timeline, as chrome://tracing and Perfetto read it; empty: none
};
// A table, or one JSON object, of a pipeline with its picture; writes the timeline where one is asked for. Throws
// InvalidArgument as step_graph, parse_profile and simulate do, IoError when a file cannot be read or written.
std::string simulate_text(const SimulateOptions& options);

// The timeline of each class: a process each, with a thread for either lane. Times in microseconds.
std::string trace_json(const compiler::Simulation& simulation, std::span<const compiler::RankClass> classes);

}  // namespace tessera::tools
