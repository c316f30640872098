// The law that all targets share.
#pragma once

#include <optional>
#include <string>

#include "tessera/base/error.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {

// `parse` of the bytes; nullopt when it refuses them. A failed check is no refusal, it passes through.
template <typename Parse>
auto parse_or_refuse(Parse&& parse, const std::string& bytes) -> std::optional<decltype(parse(bytes))> {
  try {
    return parse(bytes);
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// parse(print(parse(bytes))) is parse(bytes), by `same`.
template <typename Parse, typename Print, typename Same>
bool comes_back(const std::string& bytes, Parse&& parse, Print&& print, Same&& same) {
  const auto value = parse_or_refuse(parse, bytes);
  if (!value) return false;
  const auto printed = print(*value);
  const auto again = parse_or_refuse(parse, printed);
  if (!again) throw Broken("what was parsed and printed does not parse");
  if (!same(*value, *again)) throw Broken("what was parsed and printed parses differently");
  return true;
}

}  // namespace tessera::fuzz
