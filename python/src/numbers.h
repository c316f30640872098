// Numbers as Python passes them to C++: a bool is none of them, though Python lets it be an int. `shuffle(True)` would
// else be a buffer of one row. Every source that binds functions includes this, by threads.h.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace tessera::python {

// Python's and NumPy's.
inline bool is_bool(nanobind::handle object) {
  const std::string_view type = Py_TYPE(object.ptr())->tp_name;
  return PyBool_Check(object.ptr()) || type == "numpy.bool" || type == "numpy.bool_";
}

}  // namespace tessera::python

namespace nanobind::detail {

// Casts by nanobind's own caster of another C++ type, Wide, which holds all values of Number.
template <typename Number, typename Wide>
struct NumberCaster {
  NB_TYPE_CASTER(Number, const_name<std::is_integral_v<Number>>("int", "float"))

  template <typename Flags>
  bool from_python(handle source, Flags flags, cleanup_list* cleanup) noexcept {
    make_caster<Wide> wide;
    if (tessera::python::is_bool(source) || !wide.from_python(source, flags, cleanup)) return false;
    if constexpr (std::is_integral_v<Number>) {
      using Limits = std::numeric_limits<Number>;
      if (wide.value < Wide{Limits::min()} || wide.value > Wide{Limits::max()}) return false;
    }
    value = static_cast<Number>(wide.value);
    return true;
  }
  static handle from_cpp(Number number, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<Wide>::from_cpp(static_cast<Wide>(number), policy, cleanup);
  }
};

static_assert(!std::is_same_v<int64_t, long long> && !std::is_same_v<uint64_t, unsigned long long>,
              "nanobind's own caster is used for the other type of 64 bits");
template <>
struct type_caster<int> : NumberCaster<int, long long> {};
template <>
struct type_caster<int64_t> : NumberCaster<int64_t, long long> {};
template <>
struct type_caster<uint64_t> : NumberCaster<uint64_t, unsigned long long> {};
template <>
struct type_caster<double> : NumberCaster<double, long double> {};

}  // namespace nanobind::detail
