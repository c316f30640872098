#include "tessera/train/modes/stages/stale_step.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/gradients/pushed_gradients.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/tensor/alignment.h"
#include "tessera/train/modes/stages/wanted_rows.h"

namespace tessera::train {
namespace {

using Kind = ServerExchange::Kind;

// Each value of a message begins at an aligned place, whatever its dtype.
int64_t room_for(const Type& type) { return aligned(type.size_bytes()); }

Type numbers_type(int64_t count) { return {DType::kI64, {count}}; }

// Puts values one behind the other.
class Packer {
 public:
  void add(const TensorView& value) {
    const size_t begin = bytes_.size();
    bytes_.resize(begin + static_cast<size_t>(room_for(value.type())));
    copy_elements(value, {bytes_.data() + begin, value.type()});
  }
  void add(std::span<const int64_t> numbers) {
    const size_t begin = bytes_.size();
    bytes_.resize(begin + static_cast<size_t>(room_for(numbers_type(static_cast<int64_t>(numbers.size())))));
    if (!numbers.empty()) std::memcpy(bytes_.data() + begin, numbers.data(), numbers.size_bytes());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Takes them out again.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  TensorView next(const Type& type) {
    check(at_ + type.size_bytes() <= static_cast<int64_t>(bytes_.size()), "a message has all that it is read for");
    void* const data = const_cast<std::byte*>(bytes_.data() + at_);  // NOLINT: views do not know of constants
    at_ += room_for(type);
    return {data, type};
  }
  std::span<const int64_t> next_numbers(int64_t count) {
    const auto left = (static_cast<int64_t>(bytes_.size()) - at_) / static_cast<int64_t>(sizeof(int64_t));
    check(count >= 0 && count <= left, "a message has as many numbers as it says");
    return {next(numbers_type(count)).as<int64_t>(), static_cast<size_t>(count)};
  }

 private:
  std::span<const std::byte> bytes_;
  int64_t at_ = 0;
};

double mean_of(const TensorView& loss) {
  double sum = 0;
  const auto values = Tensor::copy_of(loss).to_doubles();
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

StaleStep::StaleStep(compiler::Compiled compiled, cluster::Context& context, StaleTraining& training, Parts parts)
    : Executable(std::move(compiled), context, nullptr),
      training_(training),
      parts_(std::move(parts)),
      number_(static_cast<int64_t>(training.graphs.size())),
      loss_(Tensor::zeros({DType::kF64, {}})),
      loss_view_(loss_.view()) {
  for (const auto& [name, type] : parts_.inputs) {
    batch_[name] = Tensor::zeros(type);
    inputs_[name] = batch_[name].view();
  }
  for (const BatchPart& part : parts_.parts) draws_noise_ = draws_noise_ || part.graphs.draws_noise;
  training_.graphs.push_back(this);
  if (is_server()) training_.exchange.allow(number_, sizes_of_messages());
}

StaleStep::~StaleStep() { training_.graphs[static_cast<size_t>(number_)] = nullptr; }

const TensorView& StaleStep::input(const std::string& name) const {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) throw InvalidArgument("the training step has no data input \"{}\"", name);
  return found->second;
}

const TensorView& StaleStep::output(const std::string& name) const {
  if (name != "loss") throw InvalidArgument("the training step has no result \"{}\"", name);
  return loss_view_;
}

std::vector<mesh::Range> StaleStep::input_slice(const std::string& name) const {
  std::vector<mesh::Range> whole;
  for (const int64_t size : input(name).shape.to_vector()) whole.push_back({0, size});
  return whole;
}

std::vector<mesh::Range> StaleStep::output_slice(const std::string& name) const {
  output(name);
  return {};
}

void StaleStep::set_before_update(const std::function<void(const TensorView&)>& call) {
  before_update_ = call;
  for (BatchPart& part : parts_.parts) {
    if (part.update) part.update->set_before_update(call);
  }
}

std::vector<TensorView> StaleStep::updated() const {
  std::vector<TensorView> all;
  const auto noise = training_.session.values().in_place(nn::kRandomStep);
  if (draws_noise_ && noise) all.push_back(*noise);
  // Each part updates the same values.
  const auto& update = parts_.parts.front().update;
  if (!update) return all;
  for (const TensorView& view : update->updated()) all.push_back(view);
  return all;
}

void StaleStep::set_profiling(bool on) {
  for (BatchPart& part : parts_.parts) {
    for (auto* executable : {part.numbers.get(), part.step.get(), part.update.get()}) {
      if (executable != nullptr) executable->set_profiling(on);
    }
  }
}

std::string StaleStep::find_non_finite() {
  return is_server() ? "not looked for by a parameter server" : own_part().step->find_non_finite();
}

void StaleStep::run(const std::string& input_noun) {
  training_.are_copies_old = training_.are_apart = true;
  try {
    if (is_server()) {
      *loss_view_.as<double>() = training_.serve_step();
    } else {
      compute(input_noun);
    }
  } catch (const std::exception&) {
    training_.exchange.note_failure(std::current_exception());
    throw;
  }
  if (!draws_noise_) return;
  auto& values = training_.session.values();
  const int64_t next = values.read(nn::kRandomStep).values<int64_t>()[0] + 1;
  if (before_update_) before_update_(values.place(nn::kRandomStep).mark());
  values.write(nn::kRandomStep, {const_cast<int64_t*>(&next), {DType::kI64, {}}});  // NOLINT: it is only read
}

// Of a worker.

void StaleStep::compute(const std::string& input_noun) {
  BatchPart& part = own_part();
  read_batch(*part.step, part.graphs.step);
  if (part.numbers) {
    read_batch(*part.numbers, part.graphs.numbers);
    part.numbers->run(input_noun);
  }
  count_noise(part);
  pull(part, input_noun);
  part.step->run(input_noun);
  const TensorView& loss = part.step->output("loss");
  if (!executor::all_finite(loss)) {
    throw executor::NonFiniteLoss(
        fmt::format("the loss of worker {} (rank {}) is not finite; first non-finite result: {}", worker(),
                    context().rank(), part.step->find_non_finite()));
  }
  *loss_view_.as<double>() = mean_of(loss);
  push(part);
  ++training_.step;
}

// Its rows.
void StaleStep::read_batch(session::Executable& executable, const ir::Graph& graph) const {
  for (const auto& [name, whole] : inputs_) {
    if (graph.find_input(name) == nullptr) continue;
    auto box = input_slice(name);
    box[0] = parts_.rows_of[static_cast<size_t>(worker())];
    copy_elements(mesh::piece_of(whole, box), executable.input(name));
  }
}

// Workers draw different noise for the same step.
void StaleStep::count_noise(const BatchPart& part) {
  if (!part.graphs.draws_noise) return;
  const int64_t step = training_.session.values().read(nn::kRandomStep).values<int64_t>()[0];
  *part.step->input(nn::kRandomStep).as<int64_t>() = step * training_.ranks.count(1) + worker();
}

void StaleStep::pull(BatchPart& part, const std::string& input_noun) {
  const auto& ranks = training_.ranks;
  const auto& lookups = part.graphs.lookups;
  std::vector<std::vector<WantedRows>> wanted;  // by lookup and server
  for (const auto& lookup : lookups) {
    const Tensor numbers = Tensor::copy_of(part.numbers->output(lookup.name));
    const Shape& shape = training_.session.global_type(lookup.table).shape;
    std::vector<mesh::Range> given;
    for (const int server : ranks.ranks_of(0)) {
      given.push_back(gives(lookup.table, server) ? piece_of(lookup.table, shape, server)[0] : mesh::Range{0, 0});
    }
    const auto ids = numbers.values<int64_t>();
    auto of_lookup = wanted_rows(ids, given);
    if (of_lookup.unknown) {
      throw executor::InvalidIndex(
          fmt::format("a lookup in \"{}\" asks for row {}, which is made of the {}s of this worker's rows of the "
                      "batch (element {} of them): the table has rows 0 to {}",
                      lookup.table, ids[*of_lookup.unknown], input_noun, *of_lookup.unknown, shape[0] - 1));
    }
    wanted.push_back(std::move(of_lookup.servers));
  }
  const ServerExchange::Head head{.kind = Kind::kPull, .step = training_.step + 1, .graph = number_};
  for (const int server : ranks.ranks_of(0)) {
    Packer question;
    for (const auto& of_lookup : wanted) {
      const auto& rows = of_lookup[static_cast<size_t>(server)].rows;
      const int64_t count = std::ssize(rows);
      question.add(std::span(&count, 1));
      question.add(rows);
    }
    training_.exchange.send(server, head, question.bytes());
  }

  std::vector<Tensor> rows;
  for (const auto& lookup : lookups) rows.emplace_back(part.step->input(lookup.name).type());
  seen_.clear();
  const int64_t workers = ranks.count(1);
  for (const int server : ranks.ranks_of(0)) {
    int64_t bytes = room_for(numbers_type(workers));
    for (const auto& name : part.graphs.whole) {
      if (gives(name, server)) bytes += room_for(type_of_piece(name, server));
    }
    const auto type_of_rows = [&](size_t k) {
      auto dims = training_.session.global_type(lookups[k].table).shape.to_vector();
      dims[0] = std::ssize(wanted[k][static_cast<size_t>(server)].rows);
      return Type{rows[k].dtype(), Shape(dims)};
    };
    for (size_t k = 0; k < lookups.size(); ++k) bytes += room_for(type_of_rows(k));
    const auto body = training_.exchange.receive_reply(server, bytes);
    Unpacker reply(body);
    const auto applied = reply.next_numbers(workers);
    if (seen_.empty()) seen_.assign(applied.begin(), applied.end());
    for (size_t i = 0; i < seen_.size(); ++i) seen_[i] = std::min(seen_[i], applied[i]);
    for (const auto& name : part.graphs.whole) {
      if (!gives(name, server)) continue;
      const TensorView& whole = part.step->input(name);
      copy_elements(reply.next(type_of_piece(name, server)),
                    mesh::piece_of(whole, piece_of(name, whole.shape, server)));
    }
    for (size_t k = 0; k < lookups.size(); ++k) {
      const WantedRows& of_server = wanted[k][static_cast<size_t>(server)];
      const TensorView given = reply.next(type_of_rows(k));
      if (of_server.rows.empty()) continue;
      const int64_t row_bytes = given.size_bytes() / std::ssize(of_server.rows);
      auto* const to = static_cast<std::byte*>(rows[k].view().data);
      const auto* const from = static_cast<const std::byte*>(given.data);
      for (const auto& [place, row] : of_server.places) {
        std::memcpy(to + place * row_bytes, from + row * row_bytes, static_cast<size_t>(row_bytes));
      }
    }
  }
  for (size_t k = 0; k < lookups.size(); ++k) copy_elements(rows[k].view(), part.step->input(lookups[k].name));
}

void StaleStep::push(BatchPart& part) {
  const ServerExchange::Head head{.kind = Kind::kPush,
                                  .step = training_.step + 1,
                                  .graph = number_,
                                  .rows = part.rows,
                                  .loss = *loss_view_.as<double>()};
  for (const int server : training_.ranks.ranks_of(0)) {
    Packer gradients;
    for (const auto& name : part.graphs.pushed) {
      const TensorView& gradient = part.step->output(name);
      gradients.add(mesh::piece_of(gradient, pushed_piece(name, gradient.shape, server)));
    }
    training_.exchange.send(server, head, gradients.bytes());
  }
}

// Of a server.

void StaleStep::apply(const ServerExchange::Message& push) {
  BatchPart& part = parts_.parts[parts_.part_of[static_cast<size_t>(push.worker)]];
  Unpacker gradients(push.body);
  const ir::Graph& from = part.graphs.step;
  for (const auto& name : part.graphs.pushed) {
    const Type type = from.type(from.find_output(name)->value);
    copy_elements(gradients.next(type_of_pushed(name, type, context().rank())), part.update->input(name));
  }
  part.update->run();
}

std::vector<std::byte> StaleStep::answer(const ServerExchange::Message& pull) const {
  const BatchPart& part = parts_.parts[parts_.part_of[static_cast<size_t>(pull.worker)]];
  const auto value_of = [this](const std::string& name) {
    const auto here = training_.session.values().in_place(name);
    check(here && here->is_dense(), "a parameter server has its values in the host's memory, row by row");
    return *here;
  };
  const int own = context().rank();
  Packer reply;
  reply.add(training_.order.applied());
  for (const auto& name : part.graphs.whole) {
    if (gives(name, own)) reply.add(value_of(name));
  }
  Unpacker question(pull.body);
  for (const auto& lookup : part.graphs.lookups) {
    const int64_t count = question.next_numbers(1)[0];
    const auto wanted = question.next_numbers(count);
    const TensorView table = value_of(lookup.table);
    auto dims = table.shape.to_vector();
    dims[0] = count;
    const Tensor rows(Type{table.dtype, Shape(dims)});
    const int64_t row_bytes = table.shape[0] == 0 ? 0 : table.size_bytes() / table.shape[0];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = wanted[static_cast<size_t>(i)];
      check(row >= 0 && row < table.shape[0], "a worker asks a server for rows that it has");
      std::memcpy(static_cast<std::byte*>(rows.view().data) + i * row_bytes,
                  static_cast<const std::byte*>(table.data) + row * row_bytes, static_cast<size_t>(row_bytes));
    }
    reply.add(rows.view());
  }
  return reply.take();
}

std::vector<ServerExchange::Sizes> StaleStep::sizes_of_messages() const {
  const int own = context().rank();
  std::vector<ServerExchange::Sizes> sizes;
  for (const size_t index : parts_.part_of) {
    const WorkerGraphs& graphs = parts_.parts[index].graphs;
    ServerExchange::Sizes& of_worker = sizes.emplace_back();
    for (const auto& lookup : graphs.lookups) {
      const auto numbers = graphs.numbers.type(graphs.numbers.find_output(lookup.name)->value).shape.num_elements();
      of_worker.most_pulled += room_for(numbers_type(1)) + room_for(numbers_type(numbers));
    }
    for (const auto& name : graphs.pushed) {
      const Type type = graphs.step.type(graphs.step.find_output(name)->value);
      of_worker.pushed += room_for(type_of_pushed(name, type, own));
    }
  }
  return sizes;
}

const mesh::Layout& StaleStep::layout_of(const std::string& parameter) const {
  const auto layouts = training_.session.layouts(parameter);
  check(!layouts.empty(), "what servers keep lies on them");
  return layouts.front();
}

bool StaleStep::gives(const std::string& parameter, int server) const {
  return !layout_of(parameter).sharding.is_replicated() || server == training_.ranks.first(0);
}

std::vector<mesh::Range> StaleStep::piece_of(const std::string& parameter, const Shape& shape, int server) const {
  const auto& [mesh, sharding] = layout_of(parameter);
  auto own = mesh::Sharding::replicated(shape.ndim());
  for (size_t dim = 0; dim < own.dims.size(); ++dim) own.dims[dim] = sharding.dims[dim];
  return mesh::slice_of(shape, own, mesh, server);
}

Type StaleStep::type_of_piece(const std::string& parameter, int server) const {
  const Type& type = training_.session.global_type(parameter);
  std::vector<int64_t> dims;
  for (const auto& range : piece_of(parameter, type.shape, server)) dims.push_back(range.size);
  return {type.dtype, Shape(dims)};
}

Type StaleStep::type_of_pushed(const std::string& name, const Type& type, int server) const {
  std::vector<int64_t> dims;
  for (const auto& range : pushed_piece(name, type.shape, server)) dims.push_back(range.size);
  return {type.dtype, Shape(dims)};
}

std::vector<mesh::Range> StaleStep::pushed_piece(const std::string& name, const Shape& shape, int server) const {
  const auto pushed = *nn::parse_pushed_name(name);
  if (!pushed.is_by_rows) return piece_of(pushed.parameter, shape, server);
  std::vector<mesh::Range> whole;
  for (const int64_t size : shape.to_vector()) whole.push_back({0, size});
  return whole;
}

}  // namespace tessera::train
