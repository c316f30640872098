// JobBoard: what a job's dashboard shows: the state and figures of each rank, how loss, speed and learning rate went,
// the checkpoints, and the last lines of the log. Who starts the ranks writes on it, the dashboard reads it. Its memory
// is bounded, whatever is written. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/cluster/dashboard/figure_curve.h"
#include "tessera/cluster/ranks/training_figures.h"

namespace tessera::cluster {

// What is known of a rank's process by who starts it. What a rank that runs does is known from its figures.
enum class BoardRankState : uint8_t {
  kExpected,  // it has not come yet
  kStarting,  // its process has been started, and has said nothing yet
  kRunning,   // it has said something
  kLost,      // its process has ended, and another one is awaited
  kLeft,      // the job goes on without it
  kEnded,     // with exit code 0
  kFailed,
};

enum class BoardJobState : uint8_t { kWaiting, kRunning, kCompleted, kFailed, kEndedBySignal };

class JobBoard {
 public:
  // `program`: the command of the ranks, for people. The clock must outlive the board.
  explicit JobBoard(std::string program, Clock& clock = Clock::system());

  // The job has so many ranks from now on; what is known of further ones is forgotten.
  void set_num_ranks(int num_ranks);
  void set_job(BoardJobState state, const std::string& reason = "");
  // `detail`: for people, as "exit code 1"; "" where there is nothing to say.
  void set_rank(int rank, BoardRankState state, const std::string& detail = "", const std::string& host = "");
  // Figures of ranks that the job does not have are passed over.
  void take(int rank, const TrainingFigures& figures);
  // A line of the log; of a rank, or -1: of who has started the ranks.
  void add_line(int rank, std::string_view line);

  // Returns one JSON object, by docs/dashboard.md.
  std::string state_json() const;
  // Returns the same in numbers, as OpenMetrics text.
  std::string metrics_text() const;

  static constexpr int kMostRanks = 1024;      // that are listed one by one
  static constexpr int kMostCurves = 64;       // ranks that have a curve of their own
  static constexpr size_t kMostPoints = 4096;  // of these together
  static constexpr size_t kMostLines = 200;
  static constexpr size_t kMaxLine = 400;
  static constexpr size_t kMostCheckpoints = 50;

 private:
  struct BoardRank {
    BoardRankState state = BoardRankState::kExpected;
    std::string detail;
    std::string host;
    std::optional<TrainingFigures> figures;
    int64_t heard_ms = 0;
    int64_t num_starts = 0;
  };
  struct BoardCheckpoint {
    int64_t step = 0;
    std::string path;
    int64_t wall_ms = 0;
  };
  struct BoardLine {
    int rank = -1;
    std::string text;
  };
  // What is said of the job as a whole, by its ranks.
  struct BoardSummary;

  BoardSummary summary() const;
  void name_who_is_waited_for(BoardSummary& sum) const;
  std::string_view word_of(const BoardRank& rank, int64_t now_ms) const;
  int64_t now_ms() const { return clock_.monotonic_ns() / 1'000'000; }
  void add_curve(std::map<int, FigureCurve>& curves, int rank, int64_t step, const std::optional<double>& value);

  Clock& clock_;
  mutable std::mutex mutex_;
  std::string program_;
  int64_t started_ms_;
  int64_t started_wall_ms_;
  int64_t ended_ms_ = -1;
  BoardJobState state_ = BoardJobState::kWaiting;
  std::string reason_;
  std::vector<BoardRank> ranks_;
  std::map<int, FigureCurve> losses_;
  std::map<int, FigureCurve> speeds_;  // of the first rank that trains alone, and so the next
  std::map<int, FigureCurve> rates_;
  std::deque<BoardCheckpoint> checkpoints_;
  std::deque<BoardLine> lines_;
};

// As /state.json has them.
std::string_view name_of(BoardRankState state);
std::string_view name_of(BoardJobState state);

}  // namespace tessera::cluster
