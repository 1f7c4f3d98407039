// Gradients without Python: what derivatives.py registers is carried out here, when an op is called
// and when its graph runs backward. Compiled once for a version of PyTorch.
#include <algorithm>
#include <atomic>
#include <bitset>
#include <sstream>
#include <unordered_set>

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

using torch::autograd::variable_list;
using torch::jit::Stack;

namespace {

// ---- formulas

// Some of an op's inputs or outputs, by number. (Without an allocation, of which each takes some
// tens of nanoseconds: a small call has no more than a few microseconds.)
using Numbers = std::bitset<64>;

// An argument of a function that computes gradients.
struct Argument {
    char kind;  // 'i': input number `index` of the op, 'o': its output, 'g': the gradient of that
                // output, 'n': whether that input needs a gradient, 'c': the int that `index` is,
                // '-': None
    size_t index;
    bool optional;  // the function takes None
};

// A line of a formula: for each result of the function the inputs whose gradient that is.
struct Call {
    std::optional<c10::OperatorHandle> function;  // none: the only argument is the result
    bool expands = false;                         // to the sizes of the input
    std::vector<Argument> arguments;
    std::vector<std::vector<size_t>> gradients_of;
    std::vector<size_t> given_once;  // the arguments that are the results of a function without any
    bool writes = false;  // it changes an argument, and is called whichever gradient is wanted
    Numbers takes_inputs, takes_outputs, takes_gradients;
    Numbers asks_for;  // the inputs among those that must not be None
    Numbers gives;     // the gradients of these inputs

    bool is_once() const { return !given_once.empty(); }

    void take(const Argument& argument) {
        arguments.push_back(argument);
        if (argument.kind == 'i') takes_inputs.set(argument.index);
        if (argument.kind == 'i' && !argument.optional) asks_for.set(argument.index);
        if (argument.kind == 'o') takes_outputs.set(argument.index);
        if (argument.kind == 'g') takes_gradients.set(argument.index);
    }
    void give(const std::vector<size_t>& inputs) {
        gradients_of.push_back(inputs);
        for (size_t input : inputs) gives.set(input);
    }
};

struct Formula {
    c10::OperatorHandle op;
    std::string label;  // its name in errors
    std::vector<Call> calls;

    size_t inputs() const { return op.schema().arguments().size(); }

    bool differentiates(size_t output) const {
        for (const Call& call : calls) {
            if (call.takes_gradients[output]) return true;
        }
        return false;
    }
};

c10::OperatorHandle op_named(const std::string& name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

bool takes_none(const c10::OperatorHandle& op, size_t position) {
    return op.schema().arguments().at(position).type()->kind() == c10::TypeKind::OptionalType;
}

// Which arguments are the results of a function that returns nothing: those that it writes to.
std::vector<size_t> given_once(const c10::OperatorHandle& op) {
    std::vector<size_t> written;
    if (!op.schema().returns().empty()) return written;
    for (const c10::Argument& it : op.schema().arguments()) {
        if (it.alias_info() && it.alias_info()->isWrite()) {
            written.push_back(&it - op.schema().arguments().data());
        }
    }
    return written;
}

// Lines as gradient_text.py writes them: "ns::backward g0 i1 o0 > 0 1,2", where the results are the
// gradients of input 0 and of both inputs 1 and 2; in place of a function "expand", or "-" for
// none.
std::vector<Call> parsed(const std::string& text) {
    std::vector<Call> calls;
    std::istringstream lines(text);
    for (std::string line, word; std::getline(lines, line);) {
        std::istringstream words(line);
        words >> word;
        Call call;
        call.expands = word == "expand";
        if (word != "-" && !call.expands) call.function = op_named(word);
        if (call.function) call.given_once = given_once(*call.function);
        if (call.function) call.writes = call.function->schema().is_mutable();
        while (words >> word && word != ">") {
            const size_t position = call.arguments.size();
            const bool is_optional = !call.function || takes_none(*call.function, position);
            call.take({word[0], std::stoul(word.substr(1)), is_optional});
        }
        while (words >> word) {
            std::vector<size_t> inputs;
            std::istringstream numbers(word);
            for (std::string number; std::getline(numbers, number, ',');) {
                inputs.push_back(std::stoul(number));
            }
            call.give(inputs);
        }
        calls.push_back(call);
    }
    return calls;
}

// Set while lab.check runs: what is called instead of a function. It writes the name into so many
// bytes; or '!' and what is wrong.
using Redirect = void (*)(const char* function, char* instead, size_t bytes);
std::atomic<Redirect> redirect = nullptr;

c10::OperatorHandle instead_of(const c10::OperatorHandle& function) {
    const Redirect find = redirect;
    if (!find) return function;
    char name[4096] = {};
    find(function.schema().name().c_str(), name, sizeof(name) - 1);
    TORCH_CHECK(name[0] != '!', name + 1);
    return op_named(name);
}

// ---- the graph

using torch::autograd::Node;
using NodePointer = decltype(std::declval<Node&>().getptr());  // which PyTorch's versions differ in

// A node in shared ownership, as PyTorch's own are made.
template <class T, class... Arguments>
NodePointer new_node(Arguments&&... arguments) {
    if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>) {
        auto* const node = new T(std::forward<Arguments>(arguments)...);
        return NodePointer(node, [](auto* it) { deleteNode(it); });  // without deep recursion
    } else {
        return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
    }
}

// One call of an op. It is a node of its own, for torch::autograd::Function makes a context, maps
// and sets for every call: with it both passes of square took 42 us of one thread, on an H100's
// host, and without it 38.
class Recorded : public Node {
  public:
    explicit Recorded(const Formula& formula) : formula_(formula) {}

    // Before the call: what it is given. The edges are of the tensors among that.
    void take(at::ArrayRef<c10::IValue> given) {
        inputs_.resize(given.size());
        for (size_t i = 0; i < given.size(); ++i) {
            if (!given[i].isTensor()) {
                inputs_[i].value = given[i];
                continue;
            }
            const at::Tensor& tensor = given[i].toTensor();
            inputs_[i].tensor = tensor.unsafeGetTensorImpl();
            inputs_[i].edge = num_outputs();
            add_next_edge(tensor.defined() ? torch::autograd::impl::gradient_edge(tensor)
                                           : torch::autograd::Edge());
        }
        choose_calls();
        for (size_t i = 0; i < given.size(); ++i) {
            if (!inputs_[i].tensor) continue;
            const at::Tensor& tensor = given[i].toTensor();
            if (used_inputs_[i]) inputs_[i].saved = SavedVariable(tensor, false);
            if (expanded_[i]) inputs_[i].sizes = tensor.sizes().vec();
        }
    }

    // After the call: what it gave, which is now a result of this node.
    void give(c10::IValue* results, size_t count) {
        outputs_.resize(count);
        for (size_t i = 0; i < count; ++i) {
            at::Tensor tensor = results[i].toTensor();
            const bool differentiates = formula_.differentiates(i) &&
                                        torch::autograd::isDifferentiableType(tensor.scalar_type());
            if (differentiates) {
                if (is_input(tensor)) results[i] = tensor = tensor.detach();
                torch::autograd::set_history(tensor, getptr());
            } else {
                add_input_metadata(undefined_input());
            }
            if (used_outputs_[i]) outputs_[i] = SavedVariable(tensor, differentiates);
        }
    }

    // The tensors that are kept; none after a backward pass has used them up.
    std::vector<at::Tensor> saved() {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<at::Tensor> tensors;
        for (size_t i = 0; i < inputs_.size(); ++i) {
            if (inputs_[i].tensor && used_inputs_[i]) tensors.push_back(inputs_[i].saved.unpack());
        }
        for (size_t i = 0; i < outputs_.size(); ++i) {
            if (!used_outputs_[i]) continue;
            at::Tensor tensor = outputs_[i].unpack(getptr());
            if (tensor.defined()) tensors.push_back(tensor);  // else it has been given
        }
        return tensors;
    }

    std::string name() const override { return formula_.label + " backward"; }

    void release_variables() override {
        std::lock_guard<std::mutex> lock(mutex_);
        inputs_.clear();
        outputs_.clear();
        is_released_ = true;
    }

  private:
    using SavedVariable = torch::autograd::SavedVariable;

    struct Input {
        c10::IValue value;                       // unless it is a tensor
        const at::TensorImpl* tensor = nullptr;  // which one, nothing of it
        size_t edge = 0;                         // of the tensor
        SavedVariable saved;                     // if a call uses it
        std::vector<int64_t> sizes;              // if a call expands to it
    };

    // A backward pass.
    struct Pass {
        const variable_list& grads;
        Numbers needs;            // the inputs whose gradients are wanted
        variable_list gradients;  // by edge
    };

    variable_list apply(variable_list&& grads) override {
        std::lock_guard<std::mutex> lock(mutex_);
        TORCH_CHECK(!is_released_, torch::autograd::ERR_BACKWARD_TWICE);
        Pass pass = {grads, {}, variable_list(num_outputs())};
        for (size_t i = 0; i < inputs_.size(); ++i)
            pass.needs[i] = inputs_[i].tensor && task_should_compute_output(inputs_[i].edge);
        if (std::any_of(grads.begin(), grads.end(), [](auto& grad) { return grad.defined(); })) {
            const bool spent = is_spent_ || at::GradMode::is_enabled();
            Numbers done;
            for (const Call* call : calls_) {
                // Of several for an input the first counts that may be made now.
                if ((call->is_once() && spent) || (call->gives & done).any()) continue;
                done |= call->gives;
                add(*call, pass);
            }
        }
        return std::move(pass.gradients);
    }

    void add(const Call& call, Pass& pass) {
        const bool is_needed = call.writes && !call.is_once();
        if (!is_needed && (call.gives & pass.needs).none()) return;
        Stack stack, given;
        stack.reserve(call.arguments.size());
        for (const Argument& it : call.arguments) stack.push_back(value(it, pass));
        for (size_t argument : call.given_once) given.push_back(stack[argument]);
        if (call.function) run(*call.function, stack);
        if (call.is_once()) {
            stack = std::move(given);
            is_spent_ = true;
            for (size_t it : call.given_once) outputs_[call.arguments[it].index] = SavedVariable();
        }
        for (size_t i = 0; i < stack.size(); ++i) {
            if (stack[i].isNone()) continue;
            for (size_t input : call.gradients_of[i]) {
                if (!pass.needs[input]) continue;
                const at::Tensor& result = stack[i].toTensor();
                pass.gradients[inputs_[input].edge] =
                    call.expands ? expanded(result, inputs_[input].sizes) : result;
            }
        }
    }

    c10::IValue value(const Argument& argument, const Pass& pass) {
        const size_t index = argument.index;
        switch (argument.kind) {
            case '-':
                return {};
            case 'n':
                return bool(pass.needs[index]);
            case 'c':
                return int64_t(index);
            case 'i':
                if (!inputs_[index].tensor) return inputs_[index].value;
                return inputs_[index].saved.unpack();
            case 'o':
                return outputs_[index].unpack(getptr());
            default:
                if (pass.grads[index].defined()) return pass.grads[index];
                if (argument.optional) return {};
                return input_metadata(index).zeros_like();
        }
    }

    // Where nobody differentiates the gradient again, its function needs no formula of its own.
    void run(const c10::OperatorHandle& known, Stack& stack) const {
        const c10::OperatorHandle function = instead_of(known);
        if (!at::GradMode::is_enabled()) {
            at::AutoDispatchBelowAutograd below;
            return function.callBoxed(&stack);
        }
        std::string changed;
        for (const c10::Argument& it : function.schema().arguments()) {
            if (!it.alias_info() || !it.alias_info()->isWrite()) continue;
            changed += (changed.empty() ? "" : ", ") + it.name();
        }
        TORCH_CHECK(changed.empty(), formula_.label, " cannot write to ", changed,
                    " where its backward pass is recorded (create_graph=True, torch.func):"
                    " call it without");
        function.callBoxed(&stack);
    }

    // Of lines for the same input the first counts whose tensors are all given, and after one that
    // gives its results once the next.
    void choose_calls() {
        Numbers done, wanted, none;
        for (size_t i = 0; i < inputs_.size(); ++i) {
            wanted[i] = inputs_[i].tensor && should_compute_output(inputs_[i].edge);
            none[i] = !inputs_[i].tensor && inputs_[i].value.isNone();
        }
        for (const Call& call : formula_.calls) {
            if ((call.asks_for & none).any() || (call.gives & done).any()) continue;
            if (!call.is_once()) done |= call.gives;  // else the next one may take its place
            if (!(call.writes && !call.is_once()) && (call.gives & wanted).none()) continue;
            calls_.push_back(&call);
            used_inputs_ |= call.takes_inputs;
            used_outputs_ |= call.takes_outputs;
            if (call.expands) expanded_ |= call.gives;
        }
    }

    bool is_input(const at::Tensor& tensor) const {
        return std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& it) {
            return it.tensor == tensor.unsafeGetTensorImpl();
        });
    }

    // A view of these sizes, the first of which are the tensor's own.
    static at::Tensor expanded(at::Tensor tensor, at::IntArrayRef sizes) {
        const int64_t dimensions = sizes.size();
        while (0 < tensor.dim() && tensor.dim() < dimensions) tensor = tensor.unsqueeze(-1);
        return tensor.expand(sizes);
    }

    const Formula& formula_;
    c10::SmallVector<const Call*, 4> calls_;  // that give wanted gradients
    Numbers used_inputs_, used_outputs_;      // by these
    Numbers expanded_;                        // inputs to whose sizes one expands
    std::vector<Input> inputs_;
    std::vector<SavedVariable> outputs_;
    bool is_spent_ = false;  // whether the gradients that are given once have been
    bool is_released_ = false;
};

// What the graph of a result keeps for its backward pass, of what is recorded here.
std::vector<at::Tensor> saved_for(const at::Tensor& result) {
    std::vector<at::Tensor> found;
    std::vector<Node*> waiting = {result.grad_fn().get()};
    std::unordered_set<Node*> seen = {nullptr};
    while (!waiting.empty()) {
        Node* const node = waiting.back();
        waiting.pop_back();
        if (!seen.insert(node).second) continue;
        for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
        if (auto* const ours = dynamic_cast<Recorded*>(node)) {
            for (at::Tensor& each : ours->saved()) found.push_back(std::move(each));
        }
    }
    return found;
}

// ---- calls

bool is_plain(const at::Tensor& tensor) {
    // No key of CUDA by name, for which the simulator would read the CPU's.
    constexpr c10::DispatchKeySet plain =
        c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::AutogradFunctionality,
                             c10::DispatchKey::ADInplaceOrView}) |
        c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::CUDABit}) |
        c10::autocast_dispatch_keyset;
    return !(tensor.key_set().raw_repr() & ~plain.raw_repr()) && !tensor._fw_grad(0).defined();
}

// torch.func differentiates for itself, whatever requires a gradient.
bool is_transformed() {
    return c10::impl::tls_local_dispatch_key_set().included_.has(
        c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool may_record(at::ArrayRef<c10::IValue> inputs) {
    if (is_transformed()) return true;
    for (const c10::IValue& input : inputs) {
        if (!input.isTensor()) continue;
        const at::Tensor& tensor = input.toTensor();
        if (tensor.requires_grad() && at::GradMode::is_enabled()) return true;
        if (tensor._fw_grad(0).defined()) return true;
    }
    return false;
}

// Nothing but gradients is asked for: no mode, transformation, autocast, hook or tangent, which
// the formulas in Python are for.
bool is_plain(at::ArrayRef<c10::IValue> inputs) {
    const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
    if (!(local.included_ - c10::default_included_set).empty()) return false;
    if (!local.excluded_.has_all(c10::default_excluded_set)) return false;  // autocast
    if (at::SavedTensorDefaultHooks::get_hooks()) return false;
    for (const c10::IValue& input : inputs) {
        if (input.isTensor() && !is_plain(input.toTensor())) return false;
    }
    return true;
}

// The op that is defined beside others: it calls `infer`, or where a gradient is wanted formula.op,
// which has more arguments and results, and records what that takes.
struct Recorder : c10::OperatorKernel {
    const Formula formula;
    const c10::OperatorHandle infer;

    Recorder(Formula formula, c10::OperatorHandle infer)
        : formula(std::move(formula)), infer(std::move(infer)) {}

    c10::FunctionSchema schema(const std::string& overload) const {
        return {infer.schema().name(), overload, formula.op.schema().arguments(),
                infer.schema().returns()};
    }

    void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
        const size_t taken = infer.schema().arguments().size(), given = formula.inputs();
        const auto inputs = torch::jit::last(*stack, given);
        const bool records = may_record(inputs), plain = is_plain(inputs);
        bool infers = !records;
        for (const c10::IValue& other : inputs.slice(taken)) infers &= other.isNone();
        const c10::OperatorHandle& op = infers ? infer : formula.op;
        if (records && plain) {
            record(stack);
        } else {
            if (infers) torch::jit::drop(*stack, given - taken);
            call(op, stack, plain);
        }
        torch::jit::drop(*stack, results(op) - results(infer));
    }

  private:
    static size_t results(const c10::OperatorHandle& op) { return op.schema().returns().size(); }

    static void call(const c10::OperatorHandle& op, Stack* stack, bool is_below_autograd) {
        if (!is_below_autograd) return op.callBoxed(stack);
        at::AutoDispatchBelowAutograd below;
        op.callBoxed(stack);
    }

    void record(Stack* stack) {
        const NodePointer node = new_node<Recorded>(formula);
        auto& recorded = static_cast<Recorded&>(*node);
        recorded.take(torch::jit::last(*stack, formula.inputs()));
        call(formula.op, stack, true);
        const size_t count = results(formula.op);
        recorded.give(stack->data() + stack->size() - count, count);
    }
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void set_redirect(Redirect to) { redirect = to; }

// Once: defines the op jitload_graphs::saved_for.
EXPORT void define_saved_for() {
    auto* const library = new torch::Library(
        torch::Library::FRAGMENT, "jitload_graphs", std::nullopt, __FILE__, __LINE__);
    library->def("saved_for(Tensor result) -> Tensor[]", &saved_for);
}

// Define an overload of `infer`, with its results and the arguments of `op`, which calls the one,
// or the other and records the formula of `text`. Graphs may outlive any handle in Python: it stays
// for good.
//
// Returns what was wrong, or null.
EXPORT const char* define_recorder(const char* op, const char* infer, const char* overload,
                                   const char* label, const char* text) {
    thread_local std::string error;
    try {
        const size_t inputs = op_named(op).schema().arguments().size();
        TORCH_CHECK(inputs <= Numbers().size(), label, " has ", inputs, " inputs; at most ",
                    Numbers().size(), " can be recorded");
        auto recorder =
            std::make_unique<Recorder>(Formula{op_named(op), label, parsed(text)}, op_named(infer));
        const std::string name = infer, space = name.substr(0, name.find("::"));
        auto* library =
            new torch::Library(torch::Library::FRAGMENT, space, std::nullopt, __FILE__, __LINE__);
        library->def(recorder->schema(overload));
        library->impl((name + "." + overload).c_str(),
                      torch::CppFunction::makeFromBoxedFunctor(std::move(recorder)));
    } catch (const std::exception& it) {
        error = it.what();
        return error.c_str();
    }
    return nullptr;
}
