// What the command `tessera` says of this build and of networks.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::tools {

// Build type, compiler, CPU model and features, cores, backends, transports, versions of the libraries.
std::string info_text(const std::string& version);
std::string info_json(const std::string& version);

struct GraphOptions {
  std::string model;
  std::string stage = "logical";
  int ranks = 1;
  int rank = 0;
  int64_t batch_size = 32;
  int64_t num_classes = 10;
  bool fake_kernels = false;
};
// The names of the built-in networks, separated by commas.
std::string model_names();
// The graph's text at that stage. Throws InvalidArgument for an unknown stage or model, or a file that does not parse.
std::string graph_text(const GraphOptions& options);

}  // namespace tessera::tools
