#include "tessera/session/values/values.h"

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::session {

void Values::add(const std::string& name, const Type& type) {
  layout_.add(name, type);
  arena_.grow_to(layout_.bytes);
}

const Type& Values::type(const std::string& name) const {
  const auto it = layout_.types.find(name);
  if (it == layout_.types.end()) throw_unknown(name);
  return it->second;
}

void Values::throw_unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [known, type] : layout_.types) names.push_back(known);
  const std::string near = closest(name, names);
  throw InvalidArgument("no parameter or state is named \"{}\"{}", name,
                        near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
}

ValuePlace Values::place(const std::string& name) const {
  const Type& type = this->type(name);
  return {arena_, layout_.offsets.at(name), type};
}

}  // namespace tessera::session
