"""Memory scopes decided by consumers, for any Relax module and any target.

A user brings a scope table and a demand function; :func:`memory_scopes` is the pass, in the steps
of TVM's texture-scope design: collect what consumers demand, decide one scope per tensor, define
VDevices, realise them, specialise PrimFuncs.  docs/scopes.md has a whole example.
"""

from vta_byoc.scopes.apply import ScopeRecord, decide_scopes, memory_scopes
from vta_byoc.scopes.decide import Decision, Kind, Producer, decide_scope
from vta_byoc.scopes.define import Legalization
from vta_byoc.scopes.sites import CallSite, DemandFunction, Needs, TensorFacts
from vta_byoc.scopes.strip import strip_vdevices
from vta_byoc.scopes.table import GLOBAL, HOST, Fact, Scope, ScopeTable, Serves

__all__ = [
    "GLOBAL",
    "HOST",
    "CallSite",
    "Decision",
    "DemandFunction",
    "Fact",
    "Kind",
    "Legalization",
    "Needs",
    "Producer",
    "Scope",
    "ScopeRecord",
    "ScopeTable",
    "Serves",
    "TensorFacts",
    "decide_scope",
    "decide_scopes",
    "memory_scopes",
    "strip_vdevices",
]
