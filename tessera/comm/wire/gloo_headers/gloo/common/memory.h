// Debian's package of Gloo leaves this header out, which its own headers for TCP include; where one is installed, that
// one is found first. What they need of it: pointers to buffers that others own, as members of pairs and operations,
// of the size that the library gives them.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class WeakNonOwningPtr final {
  std::weak_ptr<T> ptr_;
};

template <typename T>
class NonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

}  // namespace gloo
