#include "tessera/tensor/dlpack/truths.h"

namespace tessera {

bool are_truths(std::span<const std::byte> bytes) {
  std::byte all{0};  // without a way out in between, which takes many bytes at a time
  for (const std::byte byte : bytes) all |= byte;
  return all <= std::byte{1};
}

void make_truths(std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = std::byte{byte != std::byte{0}};
}

}  // namespace tessera
