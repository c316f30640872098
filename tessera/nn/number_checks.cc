#include "tessera/nn/number_checks.h"

#include <cmath>

#include "tessera/base/error.h"

namespace tessera::nn {

void require_finite(std::string_view who, std::string_view what, double value) {
  if (!std::isfinite(value)) throw InvalidArgument("{}: {} must be finite, got {}", who, what, value);
}

void require_positive(std::string_view who, std::string_view what, double value) {
  if (std::isfinite(value) && value > 0) return;
  throw InvalidArgument("{}: {} must be finite and positive, got {}", who, what, value);
}

void require_not_negative(std::string_view who, std::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw InvalidArgument("{}: {} must be finite and not negative, got {}", who, what, value);
}

void require_inside(std::string_view who, std::string_view what, double value, double low, double high) {
  if (value > low && value < high) return;
  throw InvalidArgument("{}: {} must be in ({},{}), got {}", who, what, low, high, value);
}

void require_in(std::string_view who, std::string_view what, double value, double low, double high) {
  if (value >= low && value <= high) return;
  throw InvalidArgument("{}: {} must be in [{},{}], got {}", who, what, low, high, value);
}

}  // namespace tessera::nn
