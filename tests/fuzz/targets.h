// The parsers that read what others may have written, each with examples, a mutator of its form, and what must hold of
// it whatever the bytes: it throws a tessera::Error that is no InternalError, or gives a value that prints and parses
// back equal.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/draws.h"

namespace tessera::fuzz {

// Thrown by Target::parses for a value that does not come back equal.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Target {
  std::string name;
  std::vector<std::string> examples;
  std::function<std::string(const std::string&, Draws&)> mutate;
  // True when the bytes are a value; false when they are refused.
  std::function<bool(const std::string&)> parses;
};

std::vector<Target> checkpoint_targets();
std::vector<Target> dashboard_targets();
std::vector<Target> hub_targets();
std::vector<Target> json_targets();
std::vector<Target> rendezvous_targets();
std::vector<Target> text_targets();
std::vector<Target> tls_targets();

}  // namespace tessera::fuzz
