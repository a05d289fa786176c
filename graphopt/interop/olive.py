"""Pass of Olive: models are optimized within its workflows. Olive imports this module, and users name it.

A workflow finds the pass by the package configuration that ``package_config`` gives: Olive's own, and this pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.package_config import OlivePackageConfig
from olive.passes import Pass
from olive.passes.pass_config import PassConfigParam

from graphopt.errors import UsageError

NAME = "GraphoptOptimize"
"""The type of the pass in workflows."""


class GraphoptOptimize(Pass):  # type: ignore[misc]
    """Rewrites a model into a faster equal one by ``graphopt.optimize``, with its journal and certificate beside it."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, Any]:
        """The options of the pass, which are those of ``graphopt.optimize``."""

        def option(kind: Any, default: Any, description: str) -> Any:
            return PassConfigParam(type_=kind, default_value=default, description=description)

        return {
            "target": option(str, "ort", "What runs the result: ort, portable, or another target of graphopt."),
            "policy": option(str, "reals", "How equal the result is: exact, finite, reals or approx."),
            "rules": option(list[str], [], "More rules: files, modules or packages."),
            "only": option(list[str], [], "Only these rules or families."),
            "without": option(list[str], [], "Not these rules or families."),
            "growth": option(float, None, "By what share weights may grow; by default by 0.1."),
            "verify": option(str, "1", "On how many random inputs both are compared; off, require or full."),
            "freeze": option(bool, False, "Fold initializers that callers could override."),
        }

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> Any:
        """The result, as Olive hands it on. Raises the errors of ``graphopt.optimize``."""
        from graphopt.optimize import optimize
        from graphopt.run.derivation import journal_path
        from graphopt.tools.batch import CERTIFICATE

        if not isinstance(model, ONNXModelHandler):
            raise UsageError(f"{NAME} takes ONNX models, not {type(model).__name__}: convert it by an earlier pass")
        output = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        output.parent.mkdir(parents=True, exist_ok=True)
        optimize(
            str(model.model_path),
            output=output,
            journal=journal_path(output),
            certificate=output.with_suffix(CERTIFICATE),
            target=config.target,
            policy=config.policy,
            rules=list(config.rules or ()) or None,
            only=list(config.only or ()),
            without=list(config.without or ()),
            growth=config.growth,
            verify=int(config.verify) if config.verify.isdecimal() else config.verify,
            freeze=config.freeze,
        )
        return ONNXModelHandler(model_path=str(output.parent), onnx_file_name=output.name)


def package_config() -> dict[str, Any]:
    """Olive's package configuration with this pass in it, for ``olive.workflows.run(..., package_config=...)``, or to
    be written as JSON for ``olive run --package-config``."""
    told: dict[str, Any] = OlivePackageConfig.load_default_config().model_dump(mode="json")
    everything = ["*"]
    told["passes"][NAME.lower()] = {
        "module_path": f"{__name__}.{NAME}",
        "supported_providers": everything,
        "supported_accelerators": everything,
        "supported_precisions": everything,
    }
    return told
