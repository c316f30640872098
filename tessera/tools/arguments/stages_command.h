// What a command line says of the stages of a pipeline.
#pragma once

#include <string>
#include <vector>

namespace tessera::tools {

struct StagesCommand {
  std::string stages;      // a number, or "auto"; empty: as many as `ranks` has, or no pipeline
  std::vector<int> ranks;  // by stage how many; empty: equally many; {0}: as a search finds
  int micro_batches = 0;   // 0: as many as are usual, with "auto" several numbers
  std::string schedule = "auto";
  int segments = 0;             // how often the network goes over the stages; 0: as the schedule has it
  bool searches_inside = true;  // how a stage's ranks share its work; else data parallel

  bool searches_ranks() const { return ranks == std::vector{0}; }
  bool is_pipeline() const { return !stages.empty() || !ranks.empty(); }
};

}  // namespace tessera::tools
