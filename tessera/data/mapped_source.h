// MappedSource: a source whose columns are those of another data set, some of them replaced by what a function of
// several columns makes, and only some of them kept. Internal to data/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/data/dataset.h"
#include "tessera/data/recipe.h"

namespace tessera::data {

class MappedSource : public Source {
 public:
  // The base's source and transforms are used; its order and stages are not looked at. Where there is no function,
  // columns are only chosen. Throws InvalidArgument naming a column that does not exist or is there twice.
  MappedSource(std::shared_ptr<const Recipe> base, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs, ColumnsFunction function);
  MappedSource(std::shared_ptr<const Recipe> base, const std::vector<std::string>& kept);

  const std::vector<Column>& columns() const override { return columns_; }
  int64_t size() const override { return base_->source->size(); }
  std::string to_string() const override { return base_->source->to_string(); }
  SourceState* own_state() const override { return base_->source->own_state(); }
  void read(const SampleRef& sample, std::span<const TensorView> outputs) const override;

 private:
  // Where a column comes from: a column of the base, or one that the function makes.
  struct Origin {
    bool is_made = false;
    size_t index = 0;
  };

  size_t base_column(const std::string& who, const std::string& name) const;

  std::shared_ptr<const Recipe> base_;
  std::vector<size_t> inputs_;  // the inputs of the function, which are columns of the base
  std::vector<Type> made_;      // what it makes
  ColumnsFunction function_;
  std::vector<Column> columns_;
  std::vector<Origin> origins_;  // where each column comes from
};

}  // namespace tessera::data
