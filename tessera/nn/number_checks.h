// What numbers must be that a user gives an optimizer or a cell. Each throws InvalidArgument with who was given what:
// "Adam: eps must be finite and positive, got nan". No comparison holds for NaN: it is refused by all.
#pragma once

#include <string_view>

namespace tessera::nn {

void require_finite(std::string_view who, std::string_view what, double value);
void require_positive(std::string_view who, std::string_view what, double value);      // and finite
void require_not_negative(std::string_view who, std::string_view what, double value);  // and finite
// Inside of (low, high), and in [low, high].
void require_inside(std::string_view who, std::string_view what, double value, double low, double high);
void require_in(std::string_view who, std::string_view what, double value, double low, double high);

}  // namespace tessera::nn
