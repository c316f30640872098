#include "tessera/tensor/type.h"

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera {

Type parse_type(std::string_view text) {
  const auto open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with("]")) {
    throw InvalidArgument("type \"{}\" must look like f32[2,3]", text);
  }
  Type type{.dtype = parse_dtype(text.substr(0, open))};
  const auto sizes = text.substr(open + 1, text.size() - open - 2);
  if (sizes.empty()) return type;
  for (const auto size : split(sizes, ',')) {
    const int64_t value = parse_int(size, "dim size");
    if (value < 0) throw InvalidArgument("type \"{}\": dim sizes must not be negative", text);
    type.shape.push_back(value);
  }
  type.shape.num_elements();  // refuses products that do not fit
  return type;
}

}  // namespace tessera
