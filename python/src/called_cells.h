// The cells that a model's trace calls though they are part of no network.
#pragma once

#include <map>
#include <string>

#include "python/src/tracing.h"

namespace tessera::python {

// While it lives, and is the outermost trace, cells that are called and are part of no other are remembered.
class ModelTraceScope {
 public:
  ModelTraceScope();
  ~ModelTraceScope();
  ModelTraceScope(const ModelTraceScope&) = delete;
  ModelTraceScope& operator=(const ModelTraceScope&) = delete;

 private:
  bool outer_;
};

// While it lives, the thread is in the construct() of that cell, which is written in Python.
class CallerScope {
 public:
  explicit CallerScope(nb::handle cell);
  ~CallerScope();
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;
};

// Whether this thread traces for a model.
bool is_traced_by_model();

// The classes of the cells that this thread remembers, and what holds each, by their parameters' names.
std::map<std::string, std::string>& unowned_cells();

// Whether construct() of a cell that it, or one below it, is no part of has called that one.
bool is_called_by_others(const nn::Cell& cell);

}  // namespace tessera::python
