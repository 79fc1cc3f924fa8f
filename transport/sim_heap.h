// SimHeap: a priority queue in one flat array; the smallest element comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace poseidon {

// As std::priority_queue, but elements can be removed from the middle. T is small and has
// operator>; elements that are equal come out in any order.
template <typename T>
class SimHeap {
 public:
  bool empty() const { return elements_.empty(); }
  const T& top() const { return elements_.front(); }

  void Push(const T& element) {
    elements_.push_back(element);
    std::push_heap(elements_.begin(), elements_.end(), std::greater<>());
  }

  T Pop() {
    std::pop_heap(elements_.begin(), elements_.end(), std::greater<>());
    const T result = elements_.back();
    elements_.pop_back();
    return result;
  }

  // Linear in the number of elements.
  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    std::erase_if(elements_, predicate);
    std::make_heap(elements_.begin(), elements_.end(), std::greater<>());
  }

 private:
  std::vector<T> elements_;
};

}  // namespace poseidon
