// The bytes of a record of a .ckpt file that come before its content. Internal to checkpoint/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::checkpoint {

// The bytes are those of the writer: every number as short as it can be.
std::string record_header(std::string_view name, std::string_view type_name, std::span<const int64_t> dims,
                          uint64_t content_bytes);

// Throws InvalidArgument for a name that no value can have: it is not UTF-8.
void require_value_name(const std::string& name);

}  // namespace tessera::checkpoint
