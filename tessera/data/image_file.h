// Files of images: JPEG, PNG and BMP, told apart by their first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tessera/tensor/tensor.h"

namespace tessera::data {

// The image as u8[height, width, 3], red first. Gray and palettes become red, green and blue, 16 bits become 8, alpha
// is left out, and a JPEG's orientation is not looked at. `name` stands in messages. Throws InvalidArgument for a file
// that is damaged or truncated, for another format, and for JPEG and PNG where Tessera was built without libjpeg or
// libpng.
Tensor decode_image(std::span<const std::byte> bytes, const std::string& name = "image");

// Throws InvalidArgument for a file of more bytes than the largest image that is read: it need not be looked at.
void require_image_size(int64_t size_bytes, const std::string& name);

}  // namespace tessera::data
