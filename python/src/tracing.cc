#include "python/src/tracing.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "python/src/called_cells.h"
#include "python/src/known_values.h"
#include "python/src/parameters.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

// Of each thread: while one traces, Python lets others run between any two lines of construct().
thread_local ir::Graph* traced = nullptr;
std::unique_ptr<cluster::Context> job;
pid_t process_of_job = -1;
bool has_left = false;

constexpr const char* kForked =
    "this process is a child of a rank's by fork(), and no rank of the job: what the rank is connected to is not its "
    "own. Let it read, write and compute with NumPy, or start it by multiprocessing.get_context(\"spawn\") without "
    "the variables of the job (TESSERA_RANK and its like)";

// Called as the process ends by exit(), when Python has ended: no hook of Python's hears of the code of sys.exit(). It
// was registered after the job was joined, so that what joining has loaded, MPI for one, is still there.
void end_job(int code, void*) {
  if (getpid() != process_of_job) {
    static_cast<void>(job.release());  // a child of fork() has the parent's connections, but not its threads
    return;
  }
  if (has_left) return;
  const int job_code = cluster::end_rank(*job, code);
  if (job_code == code) return;
  std::fflush(nullptr);
  _exit(job_code);
}

// In a child of fork(), called as end_job() is: before what was registered in the parent, and before what is static is
// destroyed, which would wait for threads that are the parent's.
void end_child(int code, void*) {
  if (job != nullptr && getpid() == process_of_job) return;
  std::fflush(nullptr);
  _exit(code);
}

// Called as end_job() is, before it.
void end_failed(int code, void*) {
  if (code != 0) return;
  std::fflush(nullptr);
  _exit(EXIT_FAILURE);
}

// The same, where the script was left by an error of the environment.
void end_as_usage(int code, void*) {
  if (code != EXIT_FAILURE) return;
  std::fflush(nullptr);
  _exit(cluster::kExitUsage);
}

std::vector<TracedCall>& traced_calls() {
  static thread_local std::vector<TracedCall> calls;  // empty outside of a trace
  return calls;
}

// Compiled graphs that outlive a call are few unless shapes change all the time.
constexpr size_t kMaxPrograms = 512;

int64_t programs_made = 0;  // guarded by the GIL

bool communicates(const ir::Graph& graph) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (ops::OpRegistry::instance().get(graph.node(n).op).collective) return true;
  }
  return false;
}

// The group in which all that the graph communicates happens, where that is one that a script has made: its ranks alone
// need to be here. Null for the world's, and for several.
comm::Communicator* only_group(cluster::Context& context, const ir::Graph& graph) {
  std::set<std::string> names;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    if (ops::OpRegistry::instance().get(node.op).collective) names.insert(node.attributes.get_string("group"));
  }
  if (names.size() != 1 || *names.begin() == "world" || !context.has_group(*names.begin())) return nullptr;
  return &context.group(*names.begin());
}

// Where nothing is communicated a process need not have joined its job.
cluster::Context& context_of(const ir::Graph& graph) {
  if (has_context() || communicates(graph)) return context();
  static const auto alone = cluster::single_context();
  return *alone;
}

// Of a scalar of NumPy the number; any other object as it is.
nb::object as_number(nb::handle object) {
  static const nb::handle scalar = nb::object(nb::module_::import_("numpy").attr("generic")).release();
  return nb::isinstance(object, scalar) ? object.attr("item")() : nb::borrow(object);
}

// Whether the frame runs code of these packages and not of a script.
bool is_of_package(nb::handle frame) {
  const auto name = nb::borrow<nb::dict>(frame.attr("f_globals")).attr("get")("__name__", "");
  const std::string module = nb::isinstance<nb::str>(name) ? nb::cast<std::string>(name) : "";
  const std::string package = module.substr(0, module.find('.'));
  return package == "tessera" || package == "mindspore";
}

// The innermost frame of a script, from this one on; None or invalid where there is none.
nb::object frame_of_script(nb::object frame) {
  while (frame.is_valid() && !frame.is_none() && is_of_package(frame)) frame = nb::object(frame.attr("f_back"));
  return frame;
}

// "model.py:41"
std::string place_of(nb::handle frame) {
  return fmt::format("{}:{}", nb::cast<std::string>(frame.attr("f_code").attr("co_filename")),
                     nb::cast<int>(frame.attr("f_lineno")));
}

// The line of the script that runs now; "" where none does, as in a thread of C++.
std::string line_of_script() {
  if (PyGILState_Check() == 0) return "";
  try {
    const auto frame = frame_of_script(nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame())));
    if (frame.is_valid() && !frame.is_none()) return place_of(frame);
  } catch (const std::exception&) {  // a name that is no UTF-8: the network is traced without it
  }
  return "";
}

// "train.py:80 in step_end": where the script's first thread is, asked by another thread. It waits for the GIL.
std::string place_of_script() {
  if (Py_IsInitialized() == 0) return "";
  const nb::gil_scoped_acquire gil;
  const auto thread = nb::module_::import_("threading").attr("main_thread")().attr("ident");
  const auto frame = frame_of_script(nb::module_::import_("sys").attr("_current_frames")().attr("get")(thread));
  if (!frame.is_valid() || frame.is_none()) return "";
  return fmt::format("{} in {}", place_of(frame), nb::cast<std::string>(frame.attr("f_code").attr("co_name")));
}

std::mutex left_mutex;  // no GIL: who asks must not wait for it
std::string left_at;

std::string place_left() {
  const std::lock_guard lock(left_mutex);
  return left_at;
}

// An operand in the dtype that it takes beside this object.
ops::Operand promoted(const ops::Operand& operand, nb::handle number) {
  if (operand.is_number() || !is_number(number)) return operand;
  const DType dtype = operand.value().dtype();
  if (PyFloat_Check(number.ptr()) && !is_floating(dtype)) return ops::cast(operand.value(), DType::kF32);
  const bool is_int = PyLong_Check(number.ptr()) && !PyBool_Check(number.ptr());
  return is_int && dtype == DType::kBool ? ops::cast(operand.value(), DType::kI64) : operand;
}

}  // namespace

ir::Graph* current_graph() { return traced; }

namespace {
thread_local uint64_t num_differentiations = 0;
}  // namespace
void note_differentiation() { ++num_differentiations; }
uint64_t differentiations() { return num_differentiations; }

namespace {
thread_local bool holds_for_one_call = false;
}  // namespace
void hold_for_one_call(const std::string& what) {
  if (traced == nullptr) return;
  if (is_traced_by_model()) {
    throw nb::type_error(
        fmt::format("{} is changed while the network is traced, which a Model does once for all steps: "
                    "let a parameter count, Parameter(Tensor(0), requires_grad=False), or change it "
                    "outside of construct()",
                    what)
            .c_str());
  }
  holds_for_one_call = true;
}
bool take_holds_for_one_call() { return std::exchange(holds_for_one_call, false); }

void refuse_use_as(const char* what) {
  PyFrameObject* frame = PyEval_GetFrame();
  std::string line;
  if (frame != nullptr) {
    const auto code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    line = fmt::format("{}:{}: ", nb::cast<std::string>(code.attr("co_filename")), PyFrame_GetLineNumber(frame));
  }
  throw nb::type_error(
      fmt::format("{}construct() is traced: a value has no {} before the network runs. Use operators "
                  "(select, or an if of its own), or what is known of it: shape, dtype. A `while` "
                  "becomes a `for` over a known number of turns, of which select takes those that count",
                  line, what)
          .c_str());
}

TraceScope::TraceScope(ir::Graph& graph)
    : graph_(graph), outer_(traced), outer_finder_(graph.set_line_finder(line_of_script)) {
  if (traced != &graph) calls_.swap(traced_calls());
  traced = &graph;
}
TraceScope::~TraceScope() {
  graph_.set_line_finder(std::move(outer_finder_));
  if (traced != outer_) calls_.swap(traced_calls());
  traced = outer_;
  if (traced != nullptr) return;
  forget_trace();
  forget_known_values();
}

nb::object find_call(nb::handle cell, const std::vector<ir::Value>& inputs) {
  for (const auto& call : traced_calls()) {
    if (call.cell.is(cell) && call.inputs == inputs && call.assignments == traced->assignments()) return call.result;
  }
  return {};
}

void remember_call(nb::handle cell, std::vector<ir::Value> inputs, nb::object result) {
  traced_calls().push_back({cell, std::move(inputs), std::move(result), traced->assignments()});
}

uint64_t& global_seed() {
  static uint64_t seed = 1;
  return seed;
}

int64_t& draws_of_script() {
  static int64_t draws = 0;
  return draws;
}

bool& numbers_promote() {
  static bool promote = false;  // guarded by the GIL
  return promote;
}

bool has_context() { return job != nullptr; }

bool belongs_to_job() {
  // A child by fork() of a job's only rank has that rank's context, and trains nothing of the job's.
  if (has_context()) return getpid() == process_of_job || job->size() > 1;
  return cluster::wants_ranks_from_environment() ||
         nb::cast<bool>(nb::module_::import_("tessera._job").attr("is_rank_of_launcher")());
}

cluster::Context& context() {
  cluster::Context& known = joined_context();
  if (getpid() != process_of_job && known.size() > 1) throw InvalidArgument("{}", kForked);
  return known;
}

cluster::Context& joined_context() {
  if (job != nullptr) return *job;
  static std::mutex joining;  // whoever waits for it lets go of the GIL, for whoever has it will ask for the GIL
  std::unique_lock lock(joining, std::defer_lock);
  {
    const WithoutGil waiting;
    lock.lock();
  }
  if (job != nullptr) return *job;  // another thread has joined meanwhile
  auto options = cluster::job_from_environment();
  options.script_place = place_of_script;
  options.script_left_at = place_left;
  const bool has_others = options.size > 1 || !options.scheduler.address.empty();
  if (has_others && nb::cast<bool>(nb::module_::import_("tessera._job").attr("has_place_of_parent")())) {
    throw InvalidArgument("{}", kForked);
  }
  if (const auto level = cluster::log_level_from_environment()) set_log_level(*level);
  cluster::warn_of_unknown_variables();
  cluster::warn_if_alone_among_tasks();
  std::unique_ptr<cluster::Context> made;
  {
    const WithoutGil computing;
    made = cluster::join_job(options);
  }
  job = std::move(made);
  process_of_job = getpid();
  nb::module_::import_("tessera._job").attr("note_joined")();
  // A scheduler waits for the word of its only worker, too.
  if (has_others) on_exit(end_job, nullptr);
  if (job->size() > 1) set_log_rank(job->rank());
  return *job;
}

void note_left(nb::handle traceback) {
  std::string place;
  try {
    for (auto at = nb::borrow(traceback); at.is_valid() && !at.is_none(); at = nb::object(at.attr("tb_next"))) {
      const nb::object frame = at.attr("tb_frame");
      if (is_of_package(frame)) continue;
      const nb::object code = frame.attr("f_code");
      place = fmt::format("{}:{} in {}", nb::cast<std::string>(code.attr("co_filename")),
                          nb::cast<int>(at.attr("tb_lineno")), nb::cast<std::string>(code.attr("co_name")));
    }
  } catch (const std::exception&) {  // a name that is no UTF-8: then nobody knows
    place.clear();
  }
  const std::lock_guard lock(left_mutex);
  left_at = std::move(place);
}

void leave(const std::string& failure, std::optional<int> failed_rank) {
  if (job == nullptr || has_left || getpid() != process_of_job) return;
  const nb::gil_scoped_release release;
  if (failure.empty()) {
    job->finish();
  } else {
    job->abort(failed_rank.value_or(job->rank()), failure);
  }
  has_left = true;
}

bool begin_anew_after(const std::exception& error) {
  if (job == nullptr || has_left || getpid() != process_of_job || job->recovery() == nullptr) return false;
  // The lines of this process come before those of the next one.
  for (const char* name : {"stdout", "stderr"}) {
    try {
      nb::module_::import_("sys").attr(name).attr("flush")();
    } catch (const nb::python_error&) {  // closed, or None
    }
  }
  const std::string why = cluster::begin_anew_after(*job, error);
  if (!cluster::why_dropped(*job).empty()) return true;
  if (!why.empty()) log_warning("{}", why);
  return false;
}

void fail_end() { on_exit(end_failed, nullptr); }

void fail_as_usage() { on_exit(end_as_usage, nullptr); }

void begin_child() { on_exit(end_child, nullptr); }

Operation::Operation() : own_("operator"), graph_(traced != nullptr ? traced : &own_) {}

ir::Value Operation::of_tensor(const Tensor& tensor) {
  if (graph_ != &own_) return ops::constant(*graph_, tensor);
  const auto name = std::to_string(inputs_.size());
  inputs_.push_back(tensor);
  return own_.add_input(ir::InputKind::kInput, name, tensor.type());
}

ir::Value Operation::value(nb::handle object) {
  if (nb::isinstance<ir::Value>(object)) {
    const auto value = nb::cast<ir::Value>(object);
    if (traced == nullptr || &value.graph() != traced) {
      throw InvalidArgument("a value of a trace that has ended was used: keep tensors, not what construct() computes");
    }
    return value;
  }
  if (nb::isinstance<nn::Parameter>(object)) {
    auto& parameter = nb::cast<nn::Parameter&>(object);
    if (graph_ == &own_) return of_tensor(parameter_value(parameter));
    read_by_trace(nb::cast<std::shared_ptr<nn::Parameter>>(object));
    return parameter.in(*graph_);
  }
  if (is_number(object)) return ops::fill(*graph_, {}, nb::cast<double>(nb::float_(object)));
  return of_tensor(to_tensor(object));
}

ops::Operand Operation::operand(nb::handle object) {
  if (is_number(object)) return nb::cast<double>(nb::float_(object));
  return value(object);
}

std::pair<ops::Operand, ops::Operand> Operation::operands(nb::handle x, nb::handle y) {
  if (!numbers_promote()) return {operand(x), operand(y)};
  const nb::object first = as_number(x), second = as_number(y);
  return {promoted(operand(first), second), promoted(operand(second), first)};
}

std::vector<ir::Value> Operation::values(nb::handle sequence) {
  // A tensor is a sequence of its rows, which are seldom what was meant.
  if (nb::isinstance<Tensor>(sequence) || nb::isinstance<nn::Parameter>(sequence) ||
      nb::isinstance<ir::Value>(sequence)) {
    throw nb::type_error(
        fmt::format("a sequence of tensors is needed, got one {}: write (x,) for one, or [x[i] for i in range(n)] for "
                    "its rows",
                    nb::cast<std::string>(sequence.type().attr("__name__")))
            .c_str());
  }
  std::vector<ir::Value> result;
  for (const nb::handle item : nb::iter(sequence)) result.push_back(value(item));
  return result;
}

std::vector<Tensor> Operation::run(const std::vector<ir::Value>& results) {
  for (size_t i = 0; i < results.size(); ++i) own_.add_output(fmt::format("result{}", i), results[i]);
  return program_of(own_)->run(inputs_, {});
}

nb::object Operation::finish(ir::Value result) {
  if (graph_ != &own_) return nb::cast(result);
  return nb::cast(run({result})[0]);
}

nb::object Operation::finish(const std::vector<ir::Value>& results) {
  nb::list list;
  if (graph_ != &own_) {
    for (const auto& result : results) list.append(nb::cast(result));
  } else {
    for (auto& result : run(results)) list.append(nb::cast(std::move(result)));
  }
  return nb::tuple(list);
}

nb::object Operation::finish(const ops::TopK& results) { return finish(std::vector{results.values, results.indices}); }

int64_t num_compiled() { return programs_made; }

std::shared_ptr<Program> program_of(const ir::Graph& graph) {
  // Never destroyed: at the process's end its context may go first.
  static auto& programs = *new std::map<std::string, std::shared_ptr<Program>>();
  auto text = ir::print(graph);
  if (const auto known = programs.find(text); known != programs.end()) return known->second;
  if (programs.size() > kMaxPrograms) programs.clear();
  return programs[std::move(text)] = std::make_shared<Program>(graph, Program::Parameters());
}

ProgramSession::~ProgramSession() {
  if (!home_.is_here()) static_cast<void>(session_.release());
}

std::shared_ptr<ProgramSession> ProgramSessions::find(const std::string& parameters) {
  const auto known = std::ranges::find_if(sessions_, [&](const auto& entry) { return entry.first == parameters; });
  return known == sessions_.end() ? nullptr : known->second;
}

void ProgramSessions::add(const std::string& parameters, std::shared_ptr<ProgramSession> session) {
  if (sessions_.size() == kMost) sessions_.erase(sessions_.begin());
  sessions_.emplace_back(parameters, std::move(session));
}

Program::Program(const ir::Graph& graph, const Parameters& parameters, const std::optional<Spread>& spread,
                 ProgramSessions* shared)
    : is_spread_(spread.has_value()), whole_inputs_(spread && spread->full_batch) {
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) {
      inputs_.push_back(input.name);
    } else if (parameters.contains(input.name)) {
      parameters_.insert(input.name);
    } else if (input.name != nn::kRandomStep) {
      throw InvalidArgument(
          "graph {} reads the {} \"{}\", but when its trace ended no parameter that it has met was called so: a "
          "parameter must keep its name while construct() is traced",
          graph.name(), input.kind == ir::InputKind::kState ? "state" : "parameter", input.name);
    }
  }
  take_session(spread ? context() : context_of(graph), graph, parameters, !spread ? shared : nullptr);
  for (const auto& output : graph.outputs()) {
    if (session_->holds(output.name)) {
      if (parameters_.contains(output.name)) assigned_.push_back(output.name);
    } else {
      results_.push_back(output.name);
    }
  }
  agree_on(parameters);
  ++programs_made;
  const Turn turn(shared_->turns());
  const WithoutGil computing;
  executable_ = compile(graph, spread);
}

Program::~Program() {
  if (!home_.is_here()) static_cast<void>(executable_.release());
}

// Its values are set before each run, so that nothing but the number of the random step tells the session of one
// program from that of another with the same parameters.
void Program::take_session(cluster::Context& context, const ir::Graph& graph, const Parameters& parameters,
                           ProgramSessions* shared) {
  std::string key;
  bool are_all_given = true;
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    key += fmt::format("{}: {}\n", input.name, graph.type(input.value));
    are_all_given = are_all_given && parameters.contains(input.name);
  }
  const bool is_shared = shared != nullptr && are_all_given && communicates(graph);
  if (is_shared) shared_ = shared->find(key);
  if (shared_ != nullptr) {
    session_ = &shared_->session();
    return;
  }
  shared_ = std::make_shared<ProgramSession>(context);
  session_ = &shared_->session();
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    session_->declare(input.name, graph.type(input.value));
    if (!parameters.contains(input.name)) session_->set_value(input.name, Tensor::zeros(graph.type(input.value)));
  }
  if (is_shared) shared->add(key, shared_);
}

bool Program::are_new(const Parameters& parameters) const {
  return !std::ranges::equal(parameters, agreed_, {},
                             [](const auto& named) -> const nn::Parameter* { return named.second.get(); });
}

void Program::agree_on(const Parameters& parameters) {
  if (!is_spread_ || session_->context().size() == 1) return;
  agree_on_values(parameters);
  agreed_.clear();
  for (const auto& [name, parameter] : parameters) agreed_.push_back(parameter.get());
}

void Program::agree_on_values(const Parameters& parameters) {
  comm::Communicator& world = session_->context().world();
  int64_t num_differing = 0;
  for (const auto& [name, parameter] : parameters) {
    const Tensor own = whole_value(*parameter);
    Tensor agreed = own.clone();
    const TensorView view = agreed.view();
    world.broadcast(view.data, view.num_elements(), view.dtype, 0, "taking rank 0's values of parameters");
    if (std::ranges::equal(own.bytes(), agreed.bytes())) continue;
    ++num_differing;
    set_parameter_value(*parameter, agreed);
  }
  world.all_reduce(&num_differing, 1, DType::kI64, comm::ReduceOp::kMax, "comparing the values of parameters");
  if (num_differing == 0 || session_->context().rank() != 0) return;
  log_warning("the initial values of {} differ between ranks: all take rank 0's", plural(num_differing, "parameter"));
}

// Parameters are whole between two calls, so that is how the search is to take them: all ranks repeat their updates,
// whatever else must use all ranks. States of the program's own come to lie as it says.
std::shared_ptr<const compiler::PlanRecord> Program::search_plan(const ir::Graph& graph, const mesh::Mesh& ranks,
                                                                 const compiler::ShardingHints& inputs,
                                                                 train::AutomaticPlanOptions options) {
  options.search.hints = inputs;
  options.search.whole_results = true;
  options.search.use_all_ranks = false;
  for (const auto& input : graph.inputs()) {
    if (!parameters_.contains(input.name)) continue;
    options.search.hints[input.name] = {ranks, mesh::Sharding::replicated(graph.type(input.value).shape.ndim())};
  }
  auto plan = train::plan_automatically(session_->context(), graph, options);
  compiler::StageLayouts layouts;
  for (const auto& [name, sharding] : plan->inputs) {
    if (session_->holds(name) && !sharding.is_replicated()) layouts[name] = {{plan->mesh, sharding}};
  }
  if (!layouts.empty()) session_->place(layouts);
  return plan;
}

compiler::ShardingHints Program::input_hints(const ir::Graph& graph, const mesh::Mesh& ranks, const Spread& spread) {
  compiler::ShardingHints hints;
  // One rank has all of each input.
  if (spread.full_batch && (spread.inputs.empty() || ranks.size() == 1)) return hints;
  std::vector<mesh::BatchColumn> columns;
  for (const auto& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    if (input.kind == ir::InputKind::kInput && type.shape.ndim() > 0) columns.push_back({input.name, type});
  }
  if (!spread.inputs.empty()) {
    const auto layouts = mesh::layouts_of_batch(spread.inputs, columns, ranks.size());
    for (size_t i = 0; i < columns.size(); ++i) hints[columns[i].name] = layouts[i];
    return hints;
  }
  for (const auto& column : columns) {
    auto sharding = mesh::Sharding::replicated(column.type.shape.ndim());
    sharding.dims[0] = {0};
    hints[column.name] = {ranks, sharding};
  }
  return hints;
}

std::unique_ptr<session::Executable> Program::compile(const ir::Graph& graph, const std::optional<Spread>& spread) {
  if (!spread && !communicates(graph)) return session_->compile_local(graph);
  if (!spread) {
    comm::Communicator* group = only_group(session_->context(), graph);
    return group != nullptr ? session_->compile_own(graph, *group) : session_->compile_own(graph);
  }
  const mesh::Mesh ranks({{"data", session_->context().size()}});
  const compiler::ShardingHints hints = input_hints(graph, ranks, *spread);
  compiler::PlanOptions options{.strategies = spread->strategies, .batch_by_default = spread->strategies};
  options.propagate_strategies = spread->propagation;
  options.whole_results = true;
  if (spread->search) {
    options.strategies = options.batch_by_default = false;
    options.record = search_plan(graph, ranks, hints, *spread->search);
  }
  return session_->compile(graph, ranks, hints, options);
}

void Program::require_one_batch(const std::vector<Tensor>& inputs) {
  if (!whole_inputs_ || session_->context().size() == 1) return;
  std::string types;
  std::vector<TensorView> read;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (executable_->compiled().logical.find_input(inputs_[i]) == nullptr) continue;
    types += fmt::format("{}{}", types.empty() ? "" : ", ", inputs[i].type());
    read.push_back(inputs[i].view());
  }
  if (read.empty()) return;
  session::agree_on_batch(
      session_->context().world(),
      [] {
        return std::string(
            "a training step with full_batch or dataset_strategy (for rows of each rank's own set "
            "dataset_strategy=\"data_parallel\")");
      },
      types, read);
}

void Program::set_input(const std::string& name, const Tensor& value) {
  if (!whole_inputs_) {
    copy_elements(value.view(), executable_->input(name));
  } else if (executable_->compiled().logical.find_input(name) != nullptr) {
    copy_elements(mesh::piece_of(value.view(), executable_->input_slice(name)), executable_->input(name));
  }
}

std::vector<Tensor> Program::run(const std::vector<Tensor>& inputs, const Parameters& parameters) {
  const Turn turn(shared_->turns());
  for (const auto& name : parameters_) session_->set_value(name, whole_value(*parameters.at(name)));
  std::vector<Tensor> results;
  {
    const WithoutGil computing;
    require_one_batch(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) set_input(inputs_[i], inputs[i]);
    executable_->run();
    for (const auto& name : results_) results.push_back(Tensor::copy_of(executable_->output(name)));
  }
  for (const auto& name : assigned_) set_parameter_value(*parameters.at(name), session_->value(name));
  return results;
}

}  // namespace tessera::python
