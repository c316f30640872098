// Store: small texts by name, through which the ranks of a job find each other before they share anything better.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::comm {

class Store {
 public:
  virtual ~Store() = default;
  // One rank sets a name.
  virtual void set(const std::string& name, const std::string& value) = 0;
  // Waits until the name is set. Throws IoError naming it after `timeout_ms`, PeerFailure when a rank of the job
  // failed.
  virtual std::string get(const std::string& name, int64_t timeout_ms) = 0;
  // The same, but nothing where no rank has set it within `limit_ms`; to be asked again.
  virtual std::optional<std::string> find(const std::string& name, int64_t limit_ms) = 0;
  // This rank asks for the name no more; where it has set it, no rank does, and its value is given up.
  virtual void forget(const std::string& name) = 0;
};

}  // namespace tessera::comm
