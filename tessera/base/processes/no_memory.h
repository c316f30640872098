// What is said where the system gives this process no memory.
#pragma once

#include <memory>
#include <new>
#include <string>
#include <utility>

namespace tessera {

// A std::bad_alloc that says for what the memory was.
class NoMemory : public std::bad_alloc {
 public:
  explicit NoMemory(std::string words) : words_(std::make_shared<const std::string>(std::move(words))) {}
  const char* what() const noexcept override { return words_->c_str(); }

 private:
  std::shared_ptr<const std::string> words_;  // copying throws nothing
};

// "a tensor f32[9] needs 36 B, which are not there; 4 threads run; limits: 586.0 MiB of address space (ulimit -v), of
// which 585.9 MiB are used; raise that limit, start fewer ranks on this host, or make the batch smaller": what `error`
// says, where it says for what the memory was, with the limits of this process and the ways out.
std::string no_memory_text(const std::bad_alloc& error);

}  // namespace tessera
