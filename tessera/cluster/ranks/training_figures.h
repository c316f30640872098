// TrainingFigures: what a rank says of its training to those who look at the job while it runs: how far it is, and its
// last numbers. A rank says it at most once a second, and only where somebody looks (`tessera run --dashboard`).
//
// As text it is one JSON object in one line, of at most kMaxFiguresBytes. Whatever arrives, parsing gives figures or
// nothing, and allocates no more than the text has bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::cluster {

// Less than what a pipe takes at once, so that lines of several ranks do not mix.
inline constexpr size_t kMaxFiguresBytes = 3072;

struct TrainingFigures {
  int64_t epoch = 0;  // from 1; 0: no training has begun
  int64_t num_epochs = 0;
  int64_t step = 0;  // finished, since the beginning of training
  int64_t steps_per_epoch = 0;
  std::optional<double> loss = {};  // of that step
  std::optional<double> learning_rate = {};
  std::optional<double> rows_per_second = {};  // of all ranks, but in hybrid parallel of this one
  int64_t resident_bytes = 0;                  // of the process, in the host's memory; 0: not known
  int64_t arena_bytes = 0;                     // of the rank, on its device
  std::string mode = {};                       // "data_parallel"
  std::string plan = {};                       // further words on how the step is split; "" where there are none
  std::string checkpoint = {};                 // the newest that this rank has begun to save in this run; "": none
  int64_t checkpoint_step = 0;                 // its step
  std::string ended = {};  // how the latest training ended: "completed", "stopped", "failed"; "": it goes on
  // What is seen of the rank from outside its training. A rank of -1 and a text of "" say nothing.
  std::string doing = {};     // `matmul "fc"`
  int waits_for = -1;         // the rank for which it waits long
  std::string waits_in = {};  // `all_reduce "fc" #12 of group "world"`
  int slow_rank = -1;         // the rank for which it has waited most lately
  int slow_percent = 0;       // of that time
};

// Prints the figures. Texts that are too long are cut, and control characters in them become spaces.
std::string print_figures(const TrainingFigures& figures);
// Reads what print_figures() prints; nullopt for anything else: no such object, another member, a number below 0, a
// text that is too long or no UTF-8.
std::optional<TrainingFigures> parse_figures(std::string_view text);

}  // namespace tessera::cluster
