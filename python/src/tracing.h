// What of the graph that is being traced Python code sees, and what runs where none is.
//
// Inside construct() there is one graph, and operators add nodes to it. Outside, an operator on tensors makes a graph
// of one node, which is compiled once, kept, and run. Each thread traces for itself; a program has one thread in it at
// a time.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "python/src/threads.h"
#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::python {

namespace nb = nanobind;

// The graph being traced; nullptr outside construct().
ir::Graph* current_graph();

// Throws TypeError naming the line of Python code that uses a value as Python's own: its truth, its number, its
// elements.
[[noreturn]] void refuse_use_as(const char* what);

// What this thread traces holds for one call only: `what` has changed, which the next call will find otherwise. Throws
// TypeError in a Model's trace, of which there is one for all steps. Nothing outside of traces.
void hold_for_one_call(const std::string& what);
// Whether that was said since the last time that this was asked.
bool take_holds_for_one_call();

// A call of a cell in the present trace.
struct TracedCall {
  nb::handle cell;
  std::vector<ir::Value> inputs;
  nb::object result;
  std::map<std::string, ir::ValueId> assignments;  // of the graph, after it
};
// The result of an equal call since which nothing was assigned; an invalid object where there is none.
nb::object find_call(nb::handle cell, const std::vector<ir::Value>& inputs);
void remember_call(nb::handle cell, std::vector<ir::Value> inputs, nb::object result);

// Counts what asks for gradients inside construct(): such a trace is one of a training step.
void note_differentiation();
uint64_t differentiations();

// While a TraceScope lives, operators are added to its graph, which outlives it, and nodes know the line of the script.
class TraceScope {
 public:
  explicit TraceScope(ir::Graph& graph);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  ir::Graph& graph_;
  ir::Graph* outer_;
  ir::Graph::LineFinder outer_finder_;
  std::vector<TracedCall> calls_;  // of the outer trace
};

// One call of an operator from Python: its operands as values of a graph, its results as what the caller gets: values
// inside construct(), tensors outside. Operands are values, tensors, parameters, numbers, and what NumPy makes arrays
// of; else TypeError.
class Operation {
 public:
  Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  ir::Graph& graph() { return *graph_; }
  ir::Value value(nb::handle object);
  ops::Operand operand(nb::handle object);
  // Two operands of one operator: beside a number a tensor keeps its dtype, unless numbers_promote().
  std::pair<ops::Operand, ops::Operand> operands(nb::handle x, nb::handle y);
  std::vector<ir::Value> values(nb::handle sequence);

  nb::object finish(ir::Value result);
  nb::object finish(const std::vector<ir::Value>& results);
  nb::object finish(const ops::TopK& results);

 private:
  std::vector<Tensor> run(const std::vector<ir::Value>& results);
  ir::Value of_tensor(const Tensor& tensor);

  ir::Graph own_;
  ir::Graph* graph_;
  std::vector<Tensor> inputs_;  // of own_, in order
};

// How a graph is split over the ranks of the job, as Model does it in data, semi-automatic and automatic parallelism.
struct Spread {
  std::string text = {};       // equal where all of it is equal
  bool strategies = false;     // they hold, and what has none is split by its batch; else all follows the batch
  bool propagation = false;    // what has none takes over a neighbour's
  bool full_batch = false;     // every rank gives the whole inputs; else its rows
  mesh::Strategy inputs = {};  // how whole inputs are split, those that have dims; empty: by what reads them
  bool only_training = false;  // what asks for no gradients stays each rank's own
  std::optional<train::AutomaticPlanOptions> search = std::nullopt;  // present: a search decides; strategies hold
};

// A session in which one program at a time computes. In a child of fork() it is let be.
class ProgramSession {
 public:
  explicit ProgramSession(cluster::Context& context) : session_(std::make_unique<session::Session>(context)) {}
  ~ProgramSession();
  ProgramSession(const ProgramSession&) = delete;
  ProgramSession& operator=(const ProgramSession&) = delete;

  session::Session& session() { return *session_; }
  Turns& turns() { return turns_; }

 private:
  std::unique_ptr<session::Session> session_;
  Turns turns_;
  Home home_;
};

// The sessions of the programs that one cell is compiled into, where these communicate and each is its rank's own.
// Those with the same parameters share one, and so the groups in which their collectives meet: a rank with a short
// batch runs another program than the others.
class ProgramSessions {
 public:
  ProgramSessions() = default;
  ProgramSessions(const ProgramSessions&) = delete;
  ProgramSessions& operator=(const ProgramSessions&) = delete;

  // Null where there is none, or none any more, of these parameters: their names and types, as text.
  std::shared_ptr<ProgramSession> find(const std::string& parameters);
  void add(const std::string& parameters, std::shared_ptr<ProgramSession> session);

 private:
  // A cell has another set of parameters when some are frozen, say. Each session takes address space of 64 GiB.
  static constexpr size_t kMost = 16;
  std::vector<std::pair<std::string, std::shared_ptr<ProgramSession>>> sessions_;  // the oldest first
};

// A graph compiled for this rank, with the values that it keeps from run to run.
class Program {
 public:
  using Parameters = std::map<std::string, std::shared_ptr<nn::Parameter>>;
  // Parameters that the graph reads and writes, by full name; the number of the random step may be absent, then it
  // starts at zero and stays here. Throws InvalidArgument naming another parameter or state that is absent. With a
  // spread the graph is that of all ranks, which compile it together; else it is this rank's own. `shared`: of the cell
  // that it is compiled for; null: it shares no session.
  Program(const ir::Graph& graph, const Parameters& parameters, const std::optional<Spread>& spread = std::nullopt,
          ProgramSessions* shared = nullptr);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Data inputs in the graph's order, and parameters of the names and types for which it was compiled; returns the
  // outputs that are no parameters or states, in the graph's order. Gives up the GIL while computing, and while another
  // thread is in it.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, const Parameters& parameters);
  bool is_spread() const { return is_spread_; }
  // Whether these are other parameters than those that were agreed on last.
  bool are_new(const Parameters& parameters) const;
  // With a spread: all ranks take rank 0's values of those that differ between them. Every rank must call it.
  void agree_on(const Parameters& parameters);

 private:
  void take_session(cluster::Context& context, const ir::Graph& graph, const Parameters& parameters,
                    ProgramSessions* shared);
  void agree_on_values(const Parameters& parameters);
  std::unique_ptr<session::Executable> compile(const ir::Graph& graph, const std::optional<Spread>& spread);
  static compiler::ShardingHints input_hints(const ir::Graph& graph, const mesh::Mesh& ranks, const Spread& spread);
  std::shared_ptr<const compiler::PlanRecord> search_plan(const ir::Graph& graph, const mesh::Mesh& ranks,
                                                          const compiler::ShardingHints& inputs,
                                                          train::AutomaticPlanOptions options);
  // Throws InvalidArgument on every rank where they give other rows of what all have whole.
  void require_one_batch(const std::vector<Tensor>& inputs);
  void set_input(const std::string& name, const Tensor& value);

  std::set<std::string> parameters_;
  std::vector<const nn::Parameter*> agreed_;  // parameters whose values are equal on all ranks; only compared
  bool is_spread_ = false;
  bool whole_inputs_ = false;  // every rank has them whole and reads its piece
  std::vector<std::string> inputs_;
  std::vector<std::string> results_;
  std::vector<std::string> assigned_;  // parameters with new values
  std::shared_ptr<ProgramSession> shared_;
  session::Session* session_ = nullptr;  // that one's
  std::unique_ptr<session::Executable> executable_;
  Home home_;
};

// What a graph without parameters was compiled into, once for all that ask for the same.
std::shared_ptr<Program> program_of(const ir::Graph& graph);

// How many programs were made so far.
int64_t num_compiled();

// The process's place in its job, as the environment describes it. Made at the first use, which waits for the others.
// Throws InvalidArgument in a child, by fork(), of a rank among others.
cluster::Context& context();
// The same, of which only the place is asked, also in such a child.
cluster::Context& joined_context();
bool has_context();
// Whether this process has joined its job, or is to join it whatever it trains by: `tessera run` has started it as a
// rank, or its launcher speaks of servers or of ranks that are threads. Throws what reading the variables throws.
bool belongs_to_job();
// Ends this process's part of the job: waits for the other ranks' ends, or tells them of a failure unless it is "". The
// end of the process does it by itself, with what its exit code says.
void leave(const std::string& failure, std::optional<int> failed_rank);
// Where the script was left, by this traceback, is what the rank's report says from now on where it tells of its end.
void note_left(nb::handle traceback);
// Where the error is another rank's and the job goes on in another generation, this process begins anew. Else it
// returns whether the job goes on without this rank, whose script is to end then: the error is no failure of its own.
bool begin_anew_after(const std::exception& error);
// The process, which is ending, and has left its job, fails: it ends with 1 where Python would say 0.
void fail_end();
// The process ends because of what its environment says: with cluster::kExitUsage where Python would say 1.
void fail_as_usage();
// In a child that fork() has just made: the process will end at once where it ends by exit(), without what its parent
// has registered to be done then; unless it joins a job of its own.
void begin_child();

// Whether a float makes an integer or bool tensor that it meets float32, and an int a bool one int64, and NumPy's
// scalars count as numbers.
bool& numbers_promote();

// The seed of what is drawn outside a model: initial values, dropout.
uint64_t& global_seed();
// How often something was drawn for a script itself, outside of networks and data sets, since that seed was set: what
// makes a draw differ from the one before.
int64_t& draws_of_script();

// The tensor of a tensor, a parameter, a number, or anything that NumPy makes an array of.
Tensor to_tensor(nb::handle object);
bool is_number(nb::handle object);
DType to_dtype(nb::handle object);
Ints to_ints(nb::handle object);

}  // namespace tessera::python
