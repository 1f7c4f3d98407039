// Gradients without Python: what derivatives.py registers is carried out here, when an op is called
// and when its graph runs backward. Compiled once for a version of PyTorch.
#include <algorithm>
#include <atomic>
#include <sstream>
#include <unordered_set>

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

namespace {

// ---- formulas

// An argument of a function that computes gradients.
struct Argument {
    char kind;  // 'i': input number `index` of the op, 'o': its output, 'g': the gradient of that
                // output, 'n': whether that input needs a gradient, '-': None
    size_t index;
    bool optional;  // the function takes None
};

// A line of a formula: for each result of the function the inputs whose gradient that is.
struct Call {
    std::optional<c10::OperatorHandle> function;  // none: the only argument is the result
    std::vector<Argument> arguments;
    std::vector<std::vector<size_t>> gradients_of;

    bool uses(char kind, size_t index) const {
        for (const Argument& it : arguments) {
            if (it.kind == kind && it.index == index) return true;
        }
        return false;
    }
    // Whether it changes an argument; then it is called whichever gradient is wanted.
    bool writes() const { return function && function->schema().is_mutable(); }

    bool gives(size_t input) const {
        for (const auto& inputs : gradients_of) {
            if (std::find(inputs.begin(), inputs.end(), input) != inputs.end()) return true;
        }
        return false;
    }
};

struct Formula {
    c10::OperatorHandle op;
    std::string label;  // its name in errors
    std::vector<Call> calls;

    size_t inputs() const { return op.schema().arguments().size(); }

    bool differentiates(size_t output) const {
        for (const Call& call : calls) {
            if (call.uses('g', output)) return true;
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

// Lines as derivatives.py writes them: "ns::backward g0 i1 o0 > 0 1,2", where the results are the
// gradients of input 0 and of both inputs 1 and 2.
std::vector<Call> parsed(const std::string& text) {
    std::vector<Call> calls;
    std::istringstream lines(text);
    for (std::string line, word; std::getline(lines, line);) {
        std::istringstream words(line);
        words >> word;
        Call call;
        if (word != "-") call.function = op_named(word);
        while (words >> word && word != ">") {
            const size_t position = call.arguments.size();
            const bool is_optional = !call.function || takes_none(*call.function, position);
            call.arguments.push_back({word[0], std::stoul(word.substr(1)), is_optional});
        }
        while (words >> word) {
            std::vector<size_t> inputs;
            std::istringstream numbers(word);
            for (std::string number; std::getline(numbers, number, ',');) {
                inputs.push_back(std::stoul(number));
            }
            call.gradients_of.push_back(inputs);
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

// What backward needs of one call of an op, besides its tensors.
struct Recorded : torch::CustomClassHolder {
    const Formula* formula;
    std::vector<c10::IValue> inputs;  // without tensors
    std::vector<size_t> variable_of;  // of an input: its number among the tensors, from 1; or 0
    std::vector<const Call*> calls;   // that give wanted gradients
    std::vector<std::pair<char, size_t>> saved;  // which arguments the saved tensors are
    struct Like {
        std::vector<int64_t> sizes;
        at::TensorOptions options;
    };
    std::vector<Like> outputs;  // what a gradient of zeros is like

    bool uses(char kind, size_t index) const {
        for (const Call* call : calls) {
            if (call->uses(kind, index)) return true;
        }
        return false;
    }

    // Of lines for the same input the first counts whose tensors are all given.
    void choose_calls(at::TensorList tensors) {
        std::vector<bool> is_done(inputs.size());
        for (const Call& call : formula->calls) {
            bool counts = true, is_wanted = call.writes();
            for (const Argument& it : call.arguments) {
                if (it.kind == 'i' && !it.optional && !variable_of[it.index]) {
                    counts &= !inputs[it.index].isNone();
                }
            }
            for (size_t i = 0; i < inputs.size(); ++i) {
                if (call.gives(i)) counts &= !is_done[i];
            }
            if (!counts) continue;
            for (size_t i = 0; i < inputs.size(); ++i) {
                if (!call.gives(i)) continue;
                is_done[i] = true;
                is_wanted |= variable_of[i] && tensors[variable_of[i] - 1].requires_grad();
            }
            if (is_wanted) calls.push_back(&call);
        }
    }
};

struct Node : torch::autograd::Function<Node> {
    static variable_list forward(AutogradContext* ctx, Stack& stack,
                                 const c10::intrusive_ptr<Recorded>& of, at::TensorList tensors) {
        const Formula& formula = *of->formula;
        const Stack inputs = stack;
        of->choose_calls(tensors);
        {
            at::AutoDispatchBelowAutograd below;
            formula.op.callBoxed(&stack);
        }
        variable_list outputs, to_save, without;
        const auto save = [&](char kind, size_t index, const at::Tensor& tensor) {
            if (!of->uses(kind, index)) return;
            of->saved.push_back({kind, index});
            to_save.push_back(tensor);
        };
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (of->variable_of[i]) save('i', i, inputs[i].toTensor());
        }
        for (size_t i = 0; i < stack.size(); ++i) {
            outputs.push_back(stack[i].toTensor());
            save('o', i, outputs[i]);
            of->outputs.push_back({outputs[i].sizes().vec(), outputs[i].options()});
            if (!formula.differentiates(i)) without.push_back(outputs[i]);
        }
        ctx->save_for_backward(std::move(to_save));
        ctx->mark_non_differentiable(without);
        ctx->set_materialize_grads(false);
        ctx->saved_data["of"] = c10::IValue::make_capsule(of);
        return outputs;
    }

    static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
        const auto capsule = ctx->saved_data["of"].toCapsule();
        const Recorded& of = static_cast<const Recorded&>(*capsule);
        const variable_list tensors = ctx->get_saved_variables();
        variable_list gradients(of.inputs.size());
        if (std::any_of(grads.begin(), grads.end(), [](auto& grad) { return grad.defined(); })) {
            for (const Call* call : of.calls) add(*call, ctx, of, tensors, grads, gradients);
        }
        variable_list of_arguments(2);  // of `forward`: its stack and `of` have none
        for (size_t i = 0; i < of.inputs.size(); ++i) {
            if (of.variable_of[i]) of_arguments.push_back(gradients[i]);
        }
        return of_arguments;
    }

  private:
    static bool needs(AutogradContext* ctx, const Recorded& of, size_t input) {
        return of.variable_of[input] && ctx->needs_input_grad(of.variable_of[input] - 1);
    }

    static void add(const Call& call, AutogradContext* ctx, const Recorded& of,
                    const variable_list& tensors, const variable_list& grads,
                    variable_list& gradients) {
        bool is_needed = call.writes();
        for (size_t i = 0; i < gradients.size(); ++i) {
            is_needed |= call.gives(i) && needs(ctx, of, i);
        }
        if (!is_needed) return;
        Stack stack;
        for (const Argument& it : call.arguments) {
            stack.push_back(value(it, ctx, of, tensors, grads));
        }
        if (call.function) run(*call.function, of.formula->label, stack);
        for (size_t i = 0; i < stack.size(); ++i) {
            if (stack[i].isNone()) continue;
            for (size_t input : call.gradients_of[i]) {
                if (needs(ctx, of, input)) gradients[input] = stack[i].toTensor();
            }
        }
    }

    static c10::IValue value(const Argument& argument, AutogradContext* ctx, const Recorded& of,
                             const variable_list& tensors, const variable_list& grads) {
        const size_t index = argument.index;
        if (argument.kind == '-') return {};
        if (argument.kind == 'n') return needs(ctx, of, index);
        if (argument.kind == 'g') {
            if (grads[index].defined()) return grads[index];
            if (argument.optional) return {};
            return at::zeros(of.outputs[index].sizes, of.outputs[index].options);
        }
        for (size_t i = 0; i < of.saved.size(); ++i) {
            if (of.saved[i] == std::pair(argument.kind, index)) return tensors[i];
        }
        return of.inputs[index];
    }

    // Where nobody differentiates the gradient again, its function needs no formula of its own.
    static void run(const c10::OperatorHandle& known, const std::string& label, Stack& stack) {
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
        TORCH_CHECK(changed.empty(), label, " cannot write to ", changed,
                    " where its backward pass is recorded (create_graph=True, torch.func):"
                    " call it without");
        function.callBoxed(&stack);
    }
};

// What the graph of a result keeps for its backward pass, of what is recorded here.
std::vector<at::Tensor> saved_for(const at::Tensor& result) {
    std::vector<at::Tensor> found;
    std::vector<torch::autograd::Node*> waiting = {result.grad_fn().get()};
    std::unordered_set<torch::autograd::Node*> seen = {nullptr};
    while (!waiting.empty()) {
        torch::autograd::Node* const node = waiting.back();
        waiting.pop_back();
        if (!seen.insert(node).second) continue;
        for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
        auto* const ours = dynamic_cast<torch::autograd::CppNode<Node>*>(node);
        if (!ours) continue;
        try {
            for (at::Tensor& each : ours->ctx_.get_saved_variables()) found.push_back(each);
        } catch (const c10::Error&) {  // a backward pass has used them up
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
            variable_list outputs = record(inputs);
            torch::jit::drop(*stack, given);
            for (at::Tensor& output : outputs) stack->emplace_back(std::move(output));
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

    variable_list record(at::ArrayRef<c10::IValue> inputs) {
        auto of = c10::make_intrusive<Recorded>();
        of->formula = &formula;
        variable_list tensors;
        for (const c10::IValue& input : inputs) {
            const bool is_tensor = input.isTensor();
            if (is_tensor) tensors.push_back(input.toTensor());
            of->variable_of.push_back(is_tensor ? tensors.size() : 0);
            of->inputs.push_back(is_tensor ? c10::IValue() : input);
        }
        Stack stack(inputs.begin(), inputs.end());
        return Node::apply(stack, of, at::TensorList(tensors));
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
