// Cell: a piece of a network: parameters, child cells and construct(), which builds graph nodes from symbols; nothing
// is computed here. A parameter's name is its attribute path: `up.weight` for child<Dense>("up", ...)'s weight.
//
//   struct Mlp : nn::Cell {
//     nn::Dense& up = child<nn::Dense>("up", 64, 256);
//     nn::Dense& down = child<nn::Dense>("down", 256, 10);
//     Value construct(Value x) override { return down(relu(up(x))); }
//   };
//
// Not copyable; a cell owns its children. A child or parameter may have several owners: the first one names it. Not
// thread-safe: ranks that are threads build a network each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/parameter.h"

namespace tessera::nn {

using ir::Value;

// What the tracer tells every cell before it traces.
struct Settings {
  bool training = false;
  // Parts that the batch is cut into for batch normalisation; each has statistics of its own. 0: one for all.
  int batch_norm_groups = 0;
  // Seed of dropout and other random operators.
  uint64_t seed = 0;
  bool operator==(const Settings&) const = default;
};

// What is repeated with a cell that is recomputed.
struct RecomputeOptions {
  // Collectives inside of it, of operators that are split; else their results are kept.
  bool mp_comm_recompute = true;
  // The gathering of parameters whose rows replicas share; else they are kept whole.
  bool parallel_optimizer_comm_recompute = false;
};

class Cell {
 public:
  Cell() = default;
  virtual ~Cell();
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  // Calls construct(). Nodes that it adds have the cell's path as source.
  Value operator()(Value x);
  Value operator()(Value x, Value y);
  Value operator()(std::span<const Value> inputs);

  // Override the one that fits; the others forward or refuse: a cell called with a number of inputs it has no
  // construct() for throws InvalidArgument naming it.
  virtual Value construct(Value x);
  virtual Value construct(Value x, Value y);
  virtual Value construct(std::span<const Value> inputs);

  // Every parameter below, in the order of declaration, parents first. trainable_parameters: those with requires_grad.
  std::vector<Parameter*> parameters();
  std::vector<Parameter*> trainable_parameters();
  // Throws InvalidArgument naming the closest full name.
  Parameter& find_parameter(const std::string& full_name);
  std::vector<std::pair<std::string, Cell*>> children() const;
  // The cell's own, by the names that they have here.
  const std::vector<std::pair<std::string, std::shared_ptr<Parameter>>>& own_parameters() const { return parameters_; }

  // Fixes how the operators of that name which construct() itself adds are split, as op.shard() does in the tutorials:
  // dense.shard("matmul", {{2, 1}, {4, 1}}). A call of the cell that adds none throws InvalidArgument naming those it
  // adds. Cells that are made of several operators take their own name, too: see BatchNorm2d.
  virtual void shard(const std::string& op, const mesh::Strategy& strategy);

  // What operators added here and below compute in, whatever the precision of the model: f32, bf16 or f16. The cell
  // nearest to the operator decides; its parameters stay as they are. Throws InvalidArgument for another dtype.
  void to_float(DType dtype);

  // The fusion id of all trainable parameters here and below: what travels together, see Parameter::comm_fusion. Throws
  // InvalidArgument for a negative id.
  void set_comm_fusion(int id);

  // Has servers keep all trainable parameters here and below, see Parameter::on_servers.
  void set_on_servers(bool on_servers = true);

  // The pipeline stage, from 0, on which this cell and those below it are computed, unless one of those names its own.
  // A network that goes over the stages more than once has cells of several segments on each: segment 0 is what the
  // first pass computes, and so on. Within a segment the stages follow each other, up from 0 or down to it. Has a
  // meaning in pipeline parallel only. Throws InvalidArgument for a negative one.
  void set_stage(int stage, int segment = 0);
  // Its own; -1: that of the cell above it, and so is the segment.
  int stage() const { return stage_; }
  int segment() const { return segment_; }

  // Backward computes the values inside of this cell once more instead of keeping them; what it reads and what it
  // returns is kept. Changes no result. A cell is configured once, with all that is below it: throws InvalidArgument
  // where it, a cell above or one below is recomputed already.
  void recompute(const RecomputeOptions& options = {});

  // Takes over what is set of a cell of the same structure, here and below: settings, strategies, what is computed in,
  // recomputation, stages; parts that only one of them has stay as they are.
  void configure_as(const Cell& other);

  // The attribute path: "" for the root, "layer1.0" below.
  std::string path() const;
  // Whether another cell has it as a child.
  bool is_part() const { return parent_ != nullptr; }
  // Names every parameter here and below by the path of attributes that leads to it, the first where there are several,
  // whatever it was called before and whichever cell named it.
  void name_parameters();
  // Makes the path that leads over this cell's child of that name the one of the child and of all cells below it, of
  // several the first, whichever cells they were parts of before.
  void lead_to(const std::string& name);
  // Names the parameters of this cell, and of those below it unless `recurse` is false, by the prefix and the path from
  // this cell on: "teacher." and "conv.weight" make "teacher.conv.weight". So two networks of one kind have names of
  // their own. name_parameters() takes it back.
  void prefix_parameters(const std::string& prefix, bool recurse = true);
  // What it was told, or a cell above it. One that was told nothing, such as a cell that is part of no other, has
  // inside construct() the settings of the cell whose construct() that is.
  const Settings& settings() const;
  // Whether it was told any.
  bool has_settings() const { return is_told_; }
  // Sets the settings here and below; cells whose parameters depend on them override it and call this.
  virtual void apply_settings(const Settings& settings);

  // The graph being traced. Only inside construct().
  ir::Graph& graph() const;

 protected:
  // A root cell whose nodes come from `source` instead of "."; as a child it has the child's name.
  explicit Cell(std::string source) : name_(std::move(source)) {}

  // Declares a parameter; the reference lives as long as the cell. Throws InvalidArgument for a name that is taken or
  // contains '-' or white space (strategy files could not be parsed).
  Parameter& parameter(const std::string& name, const Type& type, Initializer init, bool requires_grad = true);
  // Makes and owns a child cell.
  template <typename T, typename... Args>
  T& child(const std::string& name, Args&&... args) {
    auto made = std::make_unique<T>(std::forward<Args>(args)...);
    T& result = *made;
    adopt(name, std::move(made));
    return result;
  }
  // Takes a child; one that has no parent yet gets its path from here: with this name, or with nothing added.
  void adopt(const std::string& name, std::shared_ptr<Cell> cell, bool is_in_path = true);
  // Takes a parameter; one without an owner gets its path from here, and this name if it has none.
  void adopt(const std::string& name, std::shared_ptr<Parameter> parameter);
  // Lists a parameter among the cell's own without naming it.
  void hold(const std::string& name, std::shared_ptr<Parameter> parameter);
  // Gives up the parameter or child of that name, if there is one.
  void release(const std::string& name);
  // Runs `construct` as this cell's, without a graph: cells that were told no settings have those of this one.
  void lend_settings(const std::function<void()>& construct);
  // The same, and its parameters can be read, nodes come from its path and take its strategies.
  void enter(ir::Graph& graph, const std::function<void()>& construct);
  // It is for operators that construct() adds in some settings only.
  void shard_if_added(const std::string& op, const mesh::Strategy& strategy) { optional_strategies_[op] = strategy; }

 private:
  void apply_strategies(ir::Graph& graph, ir::NodeId first) const;
  void apply_compute_dtype(ir::Graph& graph, ir::NodeId first) const;
  void collect(std::vector<Parameter*>& into);
  void name_parameters(std::vector<Parameter*>& named);
  void follow(Cell& parent, const std::string& name, std::set<const Cell*>& led);
  // The first cell that is marked, this one or one below it; null where there is none.
  const Cell* find_recomputed() const;
  void check_name(const std::string& name) const;

  std::string name_;
  Cell* parent_ = nullptr;
  bool names_children_ = true;  // in their paths
  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Cell>>> children_;
  std::map<std::string, mesh::Strategy> strategies_;  // the strategies by operator; construct() must add each operator
  std::map<std::string, mesh::Strategy> optional_strategies_;  // those it adds in some settings only
  std::optional<DType> compute_dtype_;
  Settings settings_;
  bool is_told_ = false;               // apply_settings() was called
  const Settings* callers_ = nullptr;  // inside its construct(): of the cell whose construct() calls it
  std::optional<RecomputeOptions> recompute_;
  int stage_ = -1;
  int segment_ = 0;
  ir::Graph* graph_ = nullptr;
};

// Gives every floating parameter of the cell that dtype, and its data if set. Before the first trace. Throws
// InvalidArgument unless it is floating.
void set_parameter_dtype(Cell& cell, DType dtype);

}  // namespace tessera::nn
