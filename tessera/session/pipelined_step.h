// PipelinedStep: one rank's part in a training step of a pipeline, or in an evaluation: it runs the program of its
// stage. Phases are compiled once and prepared for each slot; slots, accumulators and what phases plan by lifetimes lie
// behind the session's persistent values and hold nothing between steps. Messages travel on lanes of their own.
//
// To whoever trains it is one executable: its inputs are whole batches, its loss is the mean over them, on all ranks.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/compiler/cuts/simulate_stages.h"
#include "tessera/ir/program.h"
#include "tessera/pipeline/search/find_schedule.h"
#include "tessera/session/messages/message_channel.h"
#include "tessera/session/session.h"

namespace tessera::session {

// What a PipelineBuilder has made ready.
struct PipelineParts {
  ir::Program program;
  std::vector<ir::Program> all_programs;
  std::unique_ptr<executor::Executor> gather;  // makes parameters whole that lie in shards; null: there are none
  std::unique_ptr<executor::Executor> sums;    // completes what is sent to stages of other kinds; null likewise
  // A phase of a chunk.
  using PhaseKey = std::pair<pipeline::PhaseKind, int>;
  std::map<PhaseKey, std::vector<std::unique_ptr<executor::Executor>>> phases;  // by slot
  std::map<PhaseKey, compiler::Compiled> compiled;                              // what the phases are made of
  // The update, in rounds; none where nothing is trained. After each but the last, all ranks are told values that the
  // first rank of some stage has made.
  struct Told {
    ValuePlace value;
    bool is_ours = false;
  };
  struct Round {
    std::unique_ptr<executor::Executor> executor;
    std::vector<Told> told = {};
  };
  std::vector<Round> rounds;
  struct Load {
    int chunk = 0;  // whose forward phase it comes before
    std::string input;
    std::string slot_name;
    std::vector<mesh::Range> slice;  // of a micro-batch
    std::vector<ValuePlace> slots;
  };
  std::vector<Load> loads;
  std::map<std::string, Tensor> batch;  // whole data inputs
  // The way of a message group: between chunks, or, of all micro-batches together, between stages.
  struct Way {
    int from = 0;
    pipeline::PhaseKind made = pipeline::PhaseKind::kForward;
    int to = 0;
    bool of_all = false;
    auto operator<=>(const Way&) const = default;
  };
  std::map<Way, std::vector<MessageChannel>>
      channels;  // to or from each rank that this one has something in common with
  // What one chunk of this stage hands over to another: by value the places of both, by slot.
  struct HandedOver {
    std::vector<ValuePlace> from;
    std::vector<ValuePlace> to;
  };
  std::map<Way, std::vector<HandedOver>> handed_over;
  // What each chunk but the first has of a state that all have: by which a micro-batch finds there what the first chunk
  // has found for it. The original, and the copy.
  std::vector<std::pair<ValuePlace, ValuePlace>> copied_states;
  std::vector<ValuePlace> received_values;  // parameters that another stage updates
  std::vector<ValuePlace> cleared;          // zero when a step begins: accumulators
  std::vector<ValuePlace> forward_states;   // that forward changes: a step that fails gives them back
  std::vector<Tensor> kept_states;          // what they were
  executor::Arena* arena = nullptr;         // that all of it lies in
  compiler::StageMemory memory = {};        // that it takes there
  // A Result is whole, of an evaluation.
  struct Result {
    Tensor whole;
    int chunk = 0;  // that computes it
    int rank = 0;   // the first one of its stage
  };
  std::map<std::string, Result> results;
  int loss_chunk = -1;               // the chunk that computes the loss; -1: none of this rank's
  pipeline::FoundSchedule schedule;  // of a training step
};

class PipelinedStep final : public Executable {
 public:
  PipelinedStep(compiler::Compiled compiled, cluster::Context& context, CoreWatch* core_watch, PipelineParts parts);
  ~PipelinedStep() override;

  const TensorView& input(const std::string& name) const override;
  const TensorView& output(const std::string& name) const override;
  std::vector<mesh::Range> input_slice(const std::string& name) const override;
  std::vector<mesh::Range> output_slice(const std::string& name) const override;
  // This rank's part of each micro-batch: of stages with equally many ranks, each rank's by its place in its stage.
  std::vector<TensorView> places_of_own_rows(const std::string& name) const override;
  void run(const std::string& input_noun = "input") override;
  void set_before_update(const std::function<void(const TensorView&)>& call) override;
  std::vector<TensorView> updated() const override;
  void set_profiling(bool on) override;
  bool may_skip() const override;
  std::string find_non_finite() override;

  // What the mean loss is multiplied by; 1 unless it is set.
  void set_loss_factor(double factor) { loss_factor_ = factor; }
  // What this stage does, and all of them; the schedule that they are of.
  const ir::Program& program() const { return parts_.program; }
  const std::vector<ir::Program>& programs() const { return parts_.all_programs; }
  const pipeline::FoundSchedule& schedule() const { return parts_.schedule; }
  // What a step takes of this rank's arena; where other steps of the session take more, the arena is larger.
  const compiler::StageMemory& memory() const { return parts_.memory; }

 private:
  struct UnderWay {
    executor::CommLane* lane = nullptr;
    int64_t ticket = -1;
  };
  // The first index of this rank's that has no place in its operator's table.
  struct BadIndexAt {
    PipelineParts::PhaseKey phase;
    int micro_batch = 0;
    executor::BadIndex index;
  };
  void begin();
  void run_items(const std::string& input_noun);
  void run_item(const ir::ProgramItem& item, const std::string& input_noun);
  // What the item is called in a timeline.
  uint32_t span_name(const ir::ProgramItem& item);
  void run_phase(const ir::ProgramItem& item);
  void update(const std::string& input_noun);
  void tell(const PipelineParts::Round& round);
  void wait_for_all(std::vector<UnderWay>& messages);
  void give_back_states();
  bool trains() const { return !parts_.rounds.empty(); }
  bool was_skipped() const;
  void load(const ir::ProgramItem& item);
  void start_messages(const ir::ProgramItem& item);
  bool is_awaited_at_once(const ir::ProgramItem& item) const;
  void hand_over(const ir::ProgramItem& item);
  void take_slot(int chunk, int slot, int micro_batch);
  void add_loss(executor::Executor& phase);
  void share_loss(const std::string& input_noun);
  std::string describe(const BadIndexAt& bad, const std::string& input_noun) const;
  int64_t first_row(const TensorView& whole, int micro_batch) const;
  void share_results();

  PipelineParts parts_;
  std::map<std::string, TensorView> inputs_;
  Tensor loss_;
  TensorView loss_view_;
  std::map<std::string, TensorView> results_;
  double loss_factor_ = 1;
  double loss_sum_ = 0;
  double loss_count_ = 0;
  std::optional<BadIndexAt> bad_index_;
  using SlotKey = std::pair<int, int>;                // chunk and slot
  std::map<SlotKey, int> holders_;                    // the micro-batch that has it
  std::map<SlotKey, std::vector<UnderWay>> leaving_;  // messages that are being sent
  std::vector<UnderWay> leaving_once_;                // of all micro-batches together
  std::vector<int64_t> told_;                         // bytes that all ranks are told
  std::function<void(const TensorView&)> before_update_;
  std::map<std::pair<PipelineParts::Way, int>, std::vector<UnderWay>> arriving_;  // by way and micro-batch
  bool are_sums_complete_ = false;
  // By whether it waits, phase, chunk and micro-batch.
  std::map<std::tuple<bool, pipeline::PhaseKind, int, int>, uint32_t> span_names_;
};

}  // namespace tessera::session
