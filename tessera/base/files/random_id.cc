#include "tessera/base/files/random_id.h"

#include <fmt/format.h>

#include <random>

namespace tessera {

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace tessera
