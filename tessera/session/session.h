// Session: one rank's values (parameters and states), and the compiled graphs that work on them in one arena.
//
// Graphs are compiled for a mesh of the job's ranks; every rank compiles the same graphs in the same order. A call is
// collective where its comment says so, in a line `Collective:` that says when: then every rank of the job makes it, in
// the same order. Not thread-safe; ranks that are threads have a session each.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/core_watch.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/comm/device_group.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/parameter.h"
#include "tessera/session/agree/device_ranks.h"
#include "tessera/session/executable.h"
#include "tessera/session/records/run_values.h"
#include "tessera/session/session_options.h"
#include "tessera/session/values/values.h"

namespace tessera::session {

// How a pipelined step is carried out (session/pipelined_step.h).
struct PipelinedOptions {
  int micro_batches = 1;
  std::string schedule = "auto";
  // How many more micro-batches than are in flight a stage has room for.
  int receive_ahead = 1;
  // What phases are predicted to take.
  compiler::MachineProfile profile = compiler::example_profile();
};

class PipelinedStep;

class Session {
 public:
  // Collective: where several ranks compute on devices that communicate by themselves; then all ranks do.
  explicit Session(cluster::Context& context, const SessionOptions& options = {});
  ~Session();

  cluster::Context& context() { return context_; }
  const SessionOptions& options() const { return options_; }
  // Where all is computed: "cpu", "cuda:1".
  std::string device_name() const;

  // Makes room for a persistent value. Before the first compile. `sharding` splits it over `mesh` (default: whole on
  // every rank).
  void declare(const std::string& name, const Type& global_type, const mesh::Sharding* sharding = nullptr,
               const mesh::Mesh* mesh = nullptr);
  // The same for a value that ranks of the layout's mesh have: a rank that is not in it has nothing of the value.
  void declare_on(const std::string& name, const Type& global_type, const mesh::Layout& layout);
  // Has values that are declared afterwards lie in a file of the options' directory: each rank those of its own that it
  // names, as it will hold them. Before all declarations, where the options have a limit of values. Throws IoError
  // where the file has no room.
  void spill(std::span<const Values::Spilled> values);
  // A file beside that one, for `what`; nullopt where no value lies in a file.
  std::optional<ScratchFile> file_beside(const std::string& what) const;
  bool holds(const std::string& name) const { return globals_.contains(name); }
  // Whether the ranks hold different pieces of it, or parts of a sum.
  bool is_split(const std::string& name) const { return splits_.contains(name); }
  // How the value lies; nullptr where it is whole on every rank. Several stages of a pipeline may have one parameter:
  // then this is how it lies on this rank's stage, or on the first of them where this rank's stage does not have it.
  const mesh::Layout* layout(const std::string& name) const;
  // All layouts of the value: one for each stage of a pipeline that has it, and one where it is split without a
  // pipeline. Empty where the value is whole on every rank.
  std::span<const mesh::Layout> layouts(const std::string& name) const;
  // Names in the order of declaration.
  const std::vector<std::string>& names() const { return names_; }
  const Type& global_type(const std::string& name) const;
  // This rank's pieces.
  Values& values() { return values_; }
  const Values& values() const { return values_; }
  // The whole value. Pieces are gathered from the ranks that have them, and parts of a sum are added up. The graph that
  // does it is compiled at the first call for the value, and kept.
  // Collective: where is_split(name). Else this rank's own copy is read.
  Tensor value(const std::string& name);
  // Takes the whole value; this rank keeps its piece. Where the ranks hold parts of a sum, the first of those that
  // share it takes all. Throws InvalidArgument when the type does not fit.
  // `after_piece`: as of initialize().
  void set_value(const std::string& name, const Tensor& whole, const std::function<void()>& after_piece = {});
  // Takes this rank's piece, in the shape that values() has of it. Where the ranks hold parts of a sum, the piece goes
  // to the first of those that share it, and zeros to the others: each rank gives the same, and this call puts it where
  // it belongs.
  void set_piece(const std::string& name, const TensorView& piece, const std::function<void()>& after_piece = {});
  // Computes the initial values of these parameters from their initializers (or takes their data): each rank what it
  // has of them. `after_piece` is called again and again meanwhile, whenever the host has made some megabytes more.
  void initialize(std::span<const nn::Parameter> parameters, uint64_t seed,
                  const std::function<void()>& after_piece = {});

  // Moves persistent values to where a plan wants them. Each rank keeps its piece of a value, and nothing of it where
  // it is not in the mesh of the value's layout. Several stages of a pipeline may have one value: each keeps its own
  // copy, split in its own way. A value that is split already, in another way, is put together on every rank first.
  // What was compiled before may not be run any more.
  // Collective: where a value of `layouts` is split already, in another way than it says. Else a rank only lets go of
  // what it has.
  void place(const compiler::StageLayouts& layouts);
  // The first half of compile(): the graph simplified and planned for the mesh. Persistent values that are whole on
  // every rank lie as the plan wants them: place(new_layouts()) moves them there.
  // Collective: where several ranks share the graph. The first such call measures how fast they communicate.
  compiler::Compiled plan(const ir::Graph& graph, const mesh::Mesh& mesh, const compiler::ShardingHints& input_hints,
                          const compiler::PlanOptions& options);
  // How a plan wants values that are whole until now.
  compiler::StageLayouts new_layouts(const compiler::Compiled& planned) const;
  // The second half: compiles what plan() made for this rank. Persistent values must lie as the plan says.
  // Collective: always. All ranks check that they will communicate in the same order.
  std::unique_ptr<Executable> compile(compiler::Compiled planned);
  // Both, with all persistent values where they lie; `input_hints` are those of the data inputs.
  // Collective: always.
  std::unique_ptr<Executable> compile(const ir::Graph& graph, const mesh::Mesh& mesh,
                                      const compiler::ShardingHints& input_hints = {},
                                      const compiler::PlanOptions& plan = {});
  // Compiles a graph that this rank wrote for itself, in its own shapes, with collectives (hybrid parallel). Throws
  // InvalidArgument naming the ranks that do not agree.
  // Collective: where this session has compiled no graph yet whose collectives are the same, of whatever shapes all
  // else is. All ranks check that their graphs' collectives fit together. For the others a rank needs nobody, because
  // ranks whose batches have different shapes come to them at different times; kernels that were never measured are the
  // usual ones there.
  std::unique_ptr<Executable> compile_own(const ir::Graph& graph);
  // The same for a graph all of whose collectives are those of one group of the context. Kernels are the usual ones.
  // Collective: as above, for the members of that group only.
  std::unique_ptr<Executable> compile_own(const ir::Graph& graph, comm::Communicator& members);
  // Compiles for one rank on its own, without collectives over a mesh. Strategies, which say how ranks share work,
  // count for nothing.
  // Collective: never.
  std::unique_ptr<Executable> compile_local(const ir::Graph& graph);

  // Compiles for the ranks of this mesh, which share the graph: its persistent values lie on them by now. Returns null
  // on the other ranks. Kernels are the usual ones.
  // Collective: always. The ranks outside the mesh call it, too, because the groups are made together.
  std::unique_ptr<Executable> compile_on(const ir::Graph& graph, const mesh::Mesh& mesh,
                                         const compiler::ShardingHints& input_hints);

  // Plans the graph of one micro-batch and that of the update (null: none) for a pipeline whose stages have these
  // ranks. `within`: by the kind of a stage (compiler::StageOptions), with the hints of the data inputs.
  compiler::StagedPlan plan_stages(const ir::Graph& micro, const ir::Graph* update, const mesh::StageRanks& ranks,
                                   std::map<int, compiler::WithinStage> within, const compiler::StageOptions& stages);
  // A step of a pipeline, or an evaluation where the plan has no update. Values must lie as the plan's layouts() say.
  // Collective: always.
  std::unique_ptr<PipelinedStep> compile_stages(compiler::StagedPlan plan, const PipelinedOptions& options);

  // What the runs of this session's graphs record of their values, where that is switched on. Pipelines record nothing
  // of theirs.
  ValueWatch& value_watch() { return value_watch_; }

  // Returns when a device has done all that it was given for this session. Throws what has failed there.
  void wait() { arena_.queue().synchronize(); }

  // Graphs so far, those included that initialize values or gather them.
  int64_t num_compiled() const { return num_compiled_; }
  int64_t arena_bytes() const { return arena_.size_bytes(); }
  executor::ArenaMemory arena_memory() const { return arena_.memory(); }
  // Where the arena begins, in which values lie.
  const std::byte* arena_data() const { return arena_.data(); }
  const executor::KernelSelection& kernels() const { return kernels_; }
  // How a graph is compiled that one rank has to itself, such as a phase of a pipeline; of a graph that ranks share,
  // the size of buckets is added.
  compiler::CompileOptions compile_options() const;
  // Of this rank, that compute.
  int num_threads() const { return kernels_.num_threads(); }
  // What was measured or remembered so far; nullptr unless kernels are chosen by measuring.
  const executor::KernelTable* kernel_table() const { return kernel_table_.get(); }

 private:
  // The hints with the layouts of persistent values: of those that are split; of all of them.
  compiler::ShardingHints with_splits(compiler::ShardingHints hints) const;
  compiler::ShardingHints with_layouts(compiler::ShardingHints hints, const mesh::Mesh& mesh) const;
  comm::Communicator& group_of(const Attributes& attributes);
  comm::DeviceGroup& device_group_of(const Attributes& attributes);
  std::unique_ptr<Executable> compile_gather(const std::string& name);
  // Made at the first call; nullptr on a rank that has nothing of the value. Collective then.
  Executable* gather_of(const std::string& name);
  void make_groups(const compiler::GroupLists& lists);
  comm::Communicator* make_group(const std::string& name, const std::vector<int>& ranks);
  std::unique_ptr<Executable> finish(compiler::Compiled compiled, const std::function<void()>& after_piece = {});
  friend class PipelineBuilder;
  // Of a schedule that was made of the graph `local`. Throws NoRoom with what lives at its peak where the device has
  // too little memory.
  std::unique_ptr<executor::Executor> make_executor(const ir::Graph& local, const ir::Schedule& schedule);
  // Ends the measuring of kernels, and keeps what was measured for later sessions.
  void keep_measured_kernels();
  ScratchFile scratch_file(const std::string& what) const;
  bool is_here(const mesh::Layout& layout) const;
  // Whether this rank has the same piece of a value by these layouts as it has now.
  bool keeps_piece(const std::string& name, const std::vector<mesh::Layout>& layouts) const;
  // Which of them this rank has; the first where it has none.
  const mesh::Layout& layout_here(const std::vector<mesh::Layout>& layouts) const;
  void declare_split(const std::string& name, const Type& global_type, const std::vector<mesh::Layout>& layouts);
  // Fills values of this graph, by the layouts that they have on the mesh.
  void run_initial(const ir::Graph& graph, const mesh::Mesh& mesh, const compiler::ShardingHints& layouts,
                   const std::function<void()>& after_piece);
  void write(const std::string& name, const TensorView& elements, const std::function<void()>& after_piece);
  Tensor value_from(const std::string& name, const mesh::Layout& split);
  // For a graph that the ranks of a mesh share.
  compiler::CompileOptions compile_options(size_t num_ranks, const compiler::PlanOptions& plan);
  // Adds this rank's part; once more where that showed that kernels must be agreed on. Collective.
  void compile_with_agreed_kernels(compiler::Compiled& planned, const compiler::CompileOptions& options,
                                   const ir::PersistentLayout& layout);
  // Whether what was compiled last is to be compiled once more, for the ranks have agreed on kernels meanwhile.
  // Collective: where kernels are measured.
  bool learns_kernels();
  void size_buckets(compiler::PartitionOptions& options);

  cluster::Context& context_;
  SessionOptions options_;
  std::unique_ptr<executor::KernelTable> kernel_table_;
  executor::KernelSelection kernels_;
  std::unique_ptr<CoreWatch> core_watch_;  // null where no thread waits for another one, or the user has said how
  executor::Arena arena_;
  std::unique_ptr<executor::InputFeed> feed_;  // null on the host, and before the first graph
  std::unique_ptr<executor::CommLanes> lanes_;
  Values values_{arena_};
  std::map<std::string, Type> globals_;
  compiler::StageLayouts splits_;  // how the persistent values lie that are not whole on every rank
  std::set<std::string> apart_;    // of these the names of what was placed on some of the ranks only
  std::vector<std::string> names_;
  std::map<std::string, std::unique_ptr<Executable>> gathers_;  // of split values, by name
  // By lane: each has communicators of its own, of the same groups.
  std::array<std::map<std::vector<int64_t>, comm::Communicator*>, ir::kNumCommLanes> groups_;
  DeviceRanks device_ranks_;
  // Of devices that communicate by themselves, by their ranks.
  std::map<std::vector<int64_t>, std::unique_ptr<comm::DeviceGroup>> device_groups_;
  std::map<std::string, comm::Communicator*> pairs_;  // of a rank and its like in another stage, by name
  std::vector<std::string> made_groups_;              // names, to destroy
  std::set<std::string> compared_;                    // the collectives of graphs of this rank's own, as text
  int64_t num_compiled_ = 0;
  ValueWatch value_watch_;
};

// Compiles and runs a graph once on one device, for operators on concrete tensors and for tests. Inputs by name; the
// results by output name.
std::map<std::string, Tensor> evaluate(const ir::Graph& graph, const std::map<std::string, Tensor>& inputs,
                                       const SessionOptions& options = {});

}  // namespace tessera::session
