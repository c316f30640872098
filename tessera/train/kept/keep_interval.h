// KeepInterval: after which steps of a training its values are kept. Either after every so many, or, where nobody has
// said how many, after so many that keeping them takes no more than a hundredth of the training's time: then after
// a loss at most those steps are made again that take as long as a hundred copies.
#pragma once

#include <cstdint>

namespace tessera::train {

class KeepInterval {
 public:
  // The largest part of a training's time that keeping takes where nobody has said after how many steps it is done.
  static constexpr double kMostPart = 0.01;

  // After every so many; 0: after as many as the costs say.
  explicit KeepInterval(int64_t steps);

  bool is_automatic() const { return steps_ == 0; }
  // Whether this step of the training is kept, counted from 1.
  bool is_due(int64_t step) const;
  // The step was kept. Nanoseconds: the time now, on a clock that does not go back, and what all that was kept so far
  // has cost. True: agree on what proposal() says, on all ranks.
  bool note_kept(int64_t step, int64_t now_ns, int64_t cost_ns);
  // After how many steps the next one would be kept, by what this rank has seen since the last agreement.
  int64_t proposal() const { return proposal_; }
  // What keeping after each step would take of a step's time, by the same.
  double part_of_step() const { return part_of_step_; }
  // Counts so many steps from the one that was kept last to the next one.
  void agree(int64_t interval);
  int64_t interval() const { return interval_; }

 private:
  int64_t steps_;
  int64_t interval_ = 1;
  int64_t num_kept_ = 0;
  int64_t newest_ = -1;  // that was kept; -1: none
  int64_t cost_ns_ = 0;  // when it was
  // Since the last agreement; at first since both versions of the memory have been written to once.
  int64_t begin_step_ = 0;
  int64_t begin_ns_ = 0;
  int64_t cheapest_ns_ = 0;  // of the copies: one that was held up says nothing of the next ones
  int64_t proposal_ = 1;
  double part_of_step_ = 0;
};

}  // namespace tessera::train
