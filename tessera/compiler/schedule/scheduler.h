// Scheduler: makes a Schedule of a local graph, step by step: kernels and work in place (schedule.cc), collectives on
// their lane (schedule_collectives.cc). The order of the nodes is node_order.h's, the memory memory_plan.h's.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/schedule/make_schedule.h"
#include "tessera/compiler/schedule/memory_plan.h"

namespace tessera::compiler {

class Scheduler {
 public:
  // `guarded`: the outputs that are written only where the graph's guard holds, see guarded_updates.h.
  Scheduler(const ir::Graph& graph, const std::set<std::string>& guarded, const ir::PersistentLayout& persistent,
            const ops::KernelCatalogue& catalogue, const ScheduleOptions& options);

  // Call once.
  ir::Schedule run();

 private:
  // Values and steps.
  int step_now() const { return static_cast<int>(schedule_.steps.size()); }
  // A new scheduled value in `buffer`, `at` bytes from its start. `id`: the graph's value that it is, kNone for a copy.
  int new_value(const std::string& name, const Type& type, const Strides& strides, int buffer, int64_t at = 0,
                ir::ValueId id = ir::kNone);
  // The value of a node's result; the scheduler reads it from there.
  int new_result(ir::ValueId v, const Strides& strides, int buffer, int64_t at = 0);
  int add_step(ir::Step step);
  // A copy of `value`, made now, in memory of its own.
  int add_copy(int value, const std::string& name, const Strides& strides);
  // The scheduled value to read `v` from, waiting for the collective that makes it.
  int read(ir::ValueId v);
  int scheduled(ir::ValueId v) const { return scheduled_[static_cast<size_t>(v)]; }
  int buffer_of(ir::ValueId v) const { return memory_.place(scheduled(v)).buffer; }
  const ir::ScheduledValue& value(int index) const { return schedule_.values[static_cast<size_t>(index)]; }
  const Strides& strides_of(ir::ValueId v) const { return strides_[static_cast<size_t>(v)]; }
  TensorView view_of(int value) const;

  // schedule.cc
  void place_inputs();
  void emit_node(ir::NodeId n);
  bool emit_alias(ir::NodeId n);
  void emit_outputs();
  void finish();
  void check_loss();
  // Whether a gate does what a check of the loss would.
  bool may_have_gate(ir::ValueId loss) const;
  void close_gate_unless_finite(int loss);
  void add_flag_step(const std::string& op, const std::vector<int>& inputs, int output);
  void take_scratch(int64_t bytes);
  // The guard of steps that write this output; -1 for none.
  int guard_of(const std::string& output);
  int guard_of_update(const ir::Node& node);
  bool dies_at(ir::ValueId v, ir::NodeId n) const;
  bool may_take(ir::NodeId n, ir::ValueId out, ir::ValueId in) const;
  bool is_replaced(int buffer) const;
  void find_homes();

  // schedule_collectives.cc
  void emit_collective(ir::NodeId n);
  void emit_in_place(const std::vector<ir::NodeId>& members);
  void emit_packed(const std::vector<ir::NodeId>& members);
  int new_dense_result(ir::ValueId v);
  int new_staging(int64_t bytes);
  void start(ir::Step step, const std::vector<ir::ValueId>& results);
  void wait_for(int start);
  bool is_under_way(int buffer) const;
  bool may_move(ir::ValueId v) const;
  int dense_copy(int value);
  int bucket_size(int64_t bucket);

  const ir::Graph& graph_;
  const std::set<std::string>& guarded_;
  const ir::PersistentLayout& persistent_;
  const ops::KernelCatalogue& catalogue_;
  const ScheduleOptions& options_;
  const ValueUses uses_;
  const NodeOrder order_;
  std::vector<Strides> strides_;    // by ValueId
  std::vector<std::string> names_;  // by ValueId
  ir::Schedule schedule_;
  MemoryPlan memory_;
  std::vector<int> scheduled_;         // by ValueId: index of the scheduled value
  std::vector<ir::ValueId> value_id_;  // by scheduled value
  std::map<int, int> scratch_;         // step -> buffer
  std::map<ir::ValueId, int> homes_;   // new values that are made where their states lie: the buffers
  bool loss_checked_ = false;

  std::map<ir::ValueId, int> made_by_;  // results of collectives under way -> their start
  std::vector<int> pending_waits_;
  std::map<int64_t, std::vector<ir::NodeId>> buckets_;
  std::map<int64_t, int> bucket_sizes_;
  std::set<int> bucket_buffers_;
};

}  // namespace tessera::compiler
