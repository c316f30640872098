// Whether a test runs whole. scripts/test runs a seeded sample of what takes minutes; with --full it sets
// TESSERA_TEST_FULL=1.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tessera {

inline bool is_full_test() {
  const char* value = std::getenv("TESSERA_TEST_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace tessera
