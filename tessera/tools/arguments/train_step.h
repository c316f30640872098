// The train step that a command is about: a built-in network's or a file's, and how it is to be spread over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

struct StepOptions {
  std::string model;
  std::string precision = "float32";  // what a built-in network computes in
  int64_t batch_size = 0;  // samples of the global batch of a built-in network; 0: ModelInfo::samples_per_part for each
  int64_t num_classes = 0;              // classes of a built-in network; 0: ModelInfo::num_classes
  int ranks = 0;                        // 0: as many as the mesh has, or 1
  std::string mesh;                     // "data=4,model=2"; empty: data=<ranks>
  std::vector<std::string> inputs;      // "x=[data,_]": how an input lies
  std::vector<std::string> strategies;  // "up:matmul=((4,1),(1,1))": of the operators of a cell
  bool semi_auto = false;               // operators without a strategy split the batch
  bool propagate = false;               // operators without a strategy take over their neighbours'
  bool optimizer_shards = false;        // replicas share the rows of every parameter
  int optimizer_shard_size = 0;         // how many at most; 0: all
  std::string recompute = "none";       // "auto": what memory_limit asks for
  std::string memory_limit;             // "2GiB": of a rank's arena
  bool fake_kernels = false;
};

// What the command line says wrongly is a UsageError, here and below: an unknown network, a value that does not fit.

// Whether the step is that of a file; else of a built-in network. Throws IoError for a path where there is no file.
bool is_file(const StepOptions& options);
// The names of the built-in networks, separated by commas.
std::string model_names();

// All throw InvalidArgument for a file that holds no sound graph. A file's graph is taken for that of the stage that is
// asked for.
//
// The forward pass of a built-in network. Throws UsageError for a file.
ir::Graph forward_graph(const StepOptions& options);
// Forward pass, loss and the gradients of "loss" with respect to the parameters, named d<parameter>. A file holds the
// first two.
ir::Graph backward_graph(const StepOptions& options);
// The whole step, with strategies.
ir::Graph step_graph(const StepOptions& options);

// The step cut into so many micro-batches, which must divide the batch. Throws UsageError for a file: its rows are what
// they are.
compiler::StepGraphs step_graphs(const StepOptions& options, int micro_batches);

// Whether an operator of the step has a strategy, from the command line or in the file.
bool has_any_strategy(const StepOptions& options);

// How the options say that the step is to be compiled.
struct Spread {
  mesh::Mesh mesh;
  compiler::ShardingHints hints;
  compiler::CompileOptions compile;
};
// Inputs are split along the first axis of the mesh where nothing else is said. Throws UsageError for a mesh that does
// not fit the number of ranks, for an input that is not there or cannot lie so, and for a memory limit without "auto",
// or the other way round.
Spread spread_of(const StepOptions& options, const ir::Graph& step);
mesh::Mesh mesh_of(const StepOptions& options);
// What --memory_limit says, in bytes.
int64_t memory_limit_of(const StepOptions& options);
// Throws UsageError for a --rank that the mesh does not have.
void require_rank(const mesh::Mesh& mesh, int rank);
// compiler::plan_ranks(). Throws UsageError where strategies of the command line fit no operator or no mesh.
compiler::Compiled plan_ranks(const StepOptions& options, const ir::Graph& step, const Spread& spread);
// What the options say of inputs. Throws UsageError as spread_of does.
compiler::ShardingHints given_layouts(const StepOptions& options, const ir::Graph& step, const mesh::Mesh& mesh);
const ops::KernelCatalogue& catalogue_of(const StepOptions& options);

// The machines that a step is planned for or simulated on.
struct MachineOptions {
  std::string machine;       // a name that compiler::machine_names() has, or a file; empty: compiler::example_profile()
  bool tf32 = false;         // products and convolutions of f32 round their operands
  int devices_per_host = 0;  // 0: as the profile says
};
// Throws as compiler::read_machine does, and InvalidArgument where it is not known how fast the machine is with TF32.
compiler::MachineProfile read_profile(const MachineOptions& options);
// Whether others took the cores so often while it was measured that its times cannot be relied on.
bool is_of_busy_machine(const compiler::MachineProfile& profile);
// The profile's name in quotation marks, and whether the machine was busy when it was measured.
std::string machines_text(const compiler::MachineProfile& profile);

}  // namespace tessera::tools
