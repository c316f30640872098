// BoundedQuestion: asks what may never be answered, as where a script is whose interpreter hangs, and waits for no
// longer than it is told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace tessera::cluster {

class BoundedQuestion {
 public:
  // `ask` is called in a thread of its own, which may outlive this; what it refers to must last as long as the process.
  // Null: nobody is asked.
  explicit BoundedQuestion(std::function<std::string()> ask) : ask_(std::move(ask)) {}

  // The answer, or "" where there is none within `limit_ms`. While a question of before is not answered, no other one
  // is asked.
  std::string answer(int64_t limit_ms);

 private:
  struct Asked;
  std::function<std::string()> ask_;
  std::shared_ptr<Asked> asked_;
};

}  // namespace tessera::cluster
