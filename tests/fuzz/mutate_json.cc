#include <nlohmann/json.hpp>
#include <utility>

#include "tests/fuzz/mutators.h"

namespace tessera::fuzz {
namespace {

using Json = nlohmann::ordered_json;

void collect(Json& value, std::vector<Json*>& values) {
  values.push_back(&value);
  if (!value.is_structured()) return;
  for (auto& inner : value) collect(inner, values);
}

Json telling_value(Draws& draws) {
  const auto number = draws.pick(telling_numbers());
  switch (draws.below(9)) {
    case 0: return number;
    case 1: return -static_cast<int64_t>(number >> 1);
    case 2: return static_cast<double>(number) + 0.5;
    case 3: return draws.pick(telling_texts());
    case 4: return nullptr;
    case 5: return draws.one_in(2);
    case 6: return Json::array();
    case 7: return Json::object();
    default: return draws.below(9);
  }
}

void drop_one(Json& value, Draws& draws) {
  if (!value.is_structured() || value.empty()) return;
  auto at = value.begin();
  std::advance(at, draws.below(value.size()));
  value.erase(at);
}

// Every value inside may be moved or gone afterwards.
void edit(Json& root, Draws& draws) {
  std::vector<Json*> values;
  collect(root, values);
  Json& value = *draws.pick(values);
  switch (draws.below(8)) {
    case 0: drop_one(value, draws); break;
    case 1:
      if (value.is_array())
        value.push_back(value.empty() ? telling_value(draws) : Json(value[draws.below(value.size())]));
      break;
    case 2: {
      Json copy = *draws.pick(values);  // before it is overwritten: one may lie inside the other
      value = std::move(copy);
      break;
    }
    case 3: {
      Json wrapped = std::move(value);
      for (size_t depth = draws.one_in(8) ? draws.below(40) : 1; depth > 0; --depth) {
        wrapped = Json::array({std::move(wrapped)});
      }
      value = std::move(wrapped);
      break;
    }
    case 4:
      if (value.is_object()) value[draws.pick(telling_texts())] = telling_value(draws);
      break;
    case 5:
      if (value.is_number_integer()) value = static_cast<int64_t>(value.get<uint64_t>() + draws.below(5) - 2);
      break;
    default: value = telling_value(draws); break;
  }
}

}  // namespace

std::string mutate_json(const std::string& text, Draws& draws) {
  auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || draws.one_in(8)) return mutate_bytes(text, draws);
  for (size_t edits = 1 + draws.below(3); edits > 0; --edits) edit(json, draws);
  auto result = json.dump(-1, ' ', false, Json::error_handler_t::ignore);
  if (draws.one_in(50)) {  // nested as deep as it goes
    const size_t depth = size_t{1} << draws.below(18);
    const size_t at = draws.below(result.size());
    result.insert(at, std::string(depth, draws.one_in(2) ? '[' : '{'));
  }
  return draws.one_in(8) ? mutate_bytes(std::move(result), draws) : result;
}

}  // namespace tessera::fuzz
