// RankProgress: how far a rank is, for other threads that look on: which step of a training it is in, what it does
// there, and of what it runs piece by piece, as an executor runs a schedule, which piece. The thread that computes
// stores numbers, relaxed; words are made when somebody asks. Thread-safe; one thread at a time runs pieces.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::comm {

// A piece of a rank's work in words.
struct PieceName {
  std::string what;  // `matmul "fc"`
  std::string line;  // of the script, that made it: "model.py:41"; "" where that is not known
};

// The first result of a step that was not finite.
struct NonFiniteResult {
  PieceName piece;
  int number = 0;  // of the piece: what ranks that run the same pieces have met first has the least
};

class RankProgress {
 public:
  // Phases that may rightly take long: as a disk takes, or a search.
  static constexpr const char* kSave = "the save of a checkpoint";
  static constexpr const char* kCompilation = "the compilation of the step";

  // Pieces are what runs: numbered, each with a name.
  class Pieces {
   public:
    virtual ~Pieces() = default;
    virtual PieceName piece_name(int number) const = 0;
    // The line that made what the call sends; `call` begins with the call's name. "" where it is not known.
    virtual std::string line_of_call(std::string_view call) const = 0;
  };

  // While a Run lives, its pieces are what the rank runs. Where an exception ends it, the piece in which it did is what
  // the rank has run last.
  class Run {
   public:
    // `progress` may be null: nobody looks on. All that is given outlives the run.
    Run(RankProgress* progress, const Pieces& pieces);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    RankProgress* progress_;
    const Pieces* outer_ = nullptr;
    uint64_t outer_begin_ = 0;
    uint64_t outer_at_ = 0;
    int num_exceptions_ = 0;
  };
  // The piece that runs from now on.
  void enter_piece(size_t number) { at_.store(begin_ + number, std::memory_order_relaxed); }

  // While a Phase lives, the rank does what it says, outside of any piece: "the callbacks". `what` is never freed.
  class Phase {
   public:
    Phase(RankProgress* progress, const char* what);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    RankProgress* progress_;
    const char* outer_ = nullptr;
  };

  // The step of the training that is under way, from 1; 0: none is.
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  void set_non_finite(NonFiniteResult result);

  // What can be said of a moment.
  struct Glance {
    uint64_t count = 0;      // another one whenever the rank has come further
    int64_t step = 0;        // under way, from 1; 0: none is
    PieceName piece;         // that runs; its name is "" where none does
    PieceName failed_piece;  // in which an exception has ended the latest run
    std::string phase;       // "" where there is none
    std::optional<NonFiniteResult> non_finite;

    // `matmul "fc"`, `the callbacks`; "" where nothing is known.
    const std::string& doing() const { return piece.what.empty() ? phase : piece.what; }
    // `step 17, matmul "fc", made by model.py:41`; "" where nothing is known.
    std::string words() const;
  };
  Glance glance() const;
  // A number that is another one whenever the rank has come further.
  uint64_t count() const;
  // As of Pieces; "" where none run.
  std::string line_of_call(std::string_view call) const;

 private:
  std::atomic<uint64_t> at_{0};  // where pieces run, their begin_ and a number
  std::atomic<int64_t> step_{0};
  std::atomic<const char*> phase_{nullptr};
  std::atomic<uint64_t> num_phases_{0};
  uint64_t begin_ = 0;  // written by who runs pieces, with the mutex held
  mutable std::mutex mutex_;
  const Pieces* pieces_ = nullptr;
  PieceName failed_piece_;
  std::optional<NonFiniteResult> non_finite_;
};

}  // namespace tessera::comm
