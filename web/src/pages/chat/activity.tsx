/* What an agent does before and while it answers: thoughts, steps, tool calls, and the agents that it asks. */
import { useId, useState, type ReactNode } from "react";

import { Icon, type IconName } from "../../components/icon";
import { Spinner } from "../../components/spinner";
import { texts } from "../../texts";
import styles from "./activity.module.css";
import { Sources } from "./notes";
import notes from "./notes.module.css";
import { listVisibleCalls, type Answer, type Step, type ToolCall } from "./turns";

const ASK_AGENT = "ask_agent";

export function Activity({ answer }: { answer: Answer }) {
  const calls = listVisibleCalls(answer.calls);
  const isRunning = answer.state === "running";
  const hasThoughts = answer.thoughts.length > 0;
  if (!hasThoughts && calls.length === 0 && answer.steps.length === 0) return null;
  return (
    <div className={styles.activity}>
      {hasThoughts && <Thoughts answer={answer} isRunning={isRunning && answer.text === ""} />}
      {isRunning && <Progress steps={answer.steps} />}
      <Calls calls={calls} isRunning={isRunning} />
    </div>
  );
}

function Thoughts({ answer, isRunning }: { answer: Answer; isRunning: boolean }) {
  return (
    <Fold icon="spark" title={isRunning ? texts.chat.thinking : texts.chat.thoughts(answer.thoughts.length)} isBusy={isRunning}>
      <ol className={styles.thoughts}>
        {answer.thoughts.map((thought, index) => (
          <li key={index}>{thought.content}</li>
        ))}
      </ol>
    </Fold>
  );
}

/** Steps of one task as a list with a bar; steps of several tasks below each other. */
function Progress({ steps }: { steps: readonly Step[] }) {
  const open = steps.filter((step) => step.total > 1 || step.status === "in_progress");
  const agents = [...new Set(open.map((step) => step.agent))];
  return agents.map((agent) => {
    const own = open.filter((step) => step.agent === agent);
    const total = Math.max(...own.map((step) => step.total));
    const done = own.filter((step) => step.status === "completed").length;
    const current = own.findLast((step) => step.status === "in_progress") ?? own.at(-1);
    if (!current) return null;
    return (
      <div key={agent ?? ""} className={styles.progress}>
        <div className={styles.progressText}>
          <span>{current.label}</span>
          {total > 1 && <span className={styles.count}>{texts.chat.step(Math.min(current.step, total), total)}</span>}
        </div>
        <progress aria-label={current.label} max={total} {...(total > 1 ? { value: done } : {})} />
      </div>
    );
  });
}

/** Calls in order; those of an agent that was asked stand inside of the call that asked it. */
function Calls({ calls, isRunning }: { calls: readonly ToolCall[]; isRunning: boolean }) {
  const names = new Set(calls.filter((call) => call.name === ASK_AGENT).map((call) => call.arguments["agent_name"]));
  const isNested = (call: ToolCall) => call.agent !== null && names.has(call.agent);
  const top = calls.filter((call) => !isNested(call));
  // A chain of agents that ask each other in a circle has no top.
  const shown = top.length > 0 ? top : calls;
  if (shown.length === 0) return null;
  return (
    <ul className={styles.calls}>
      {shown.map((call) => (
        <li key={`${call.agent} ${call.id}`}>
          <CallRow call={call} all={calls} isRunning={isRunning} depth={0} />
        </li>
      ))}
    </ul>
  );
}

const MAX_CALL_DEPTH = 4;

function CallRow({ call, all, isRunning, depth }: { call: ToolCall; all: readonly ToolCall[]; isRunning: boolean; depth: number }) {
  const isAgent = call.name === ASK_AGENT;
  const asked = isAgent ? call.arguments["agent_name"] : undefined;
  const inner = depth < MAX_CALL_DEPTH && asked ? all.filter((other) => other.agent === asked && other !== call) : [];
  const isBusy = call.status === "running" && isRunning;
  const subject = describeArguments(call);
  const title = (
    <>
      <span className={styles.callName}>{isAgent ? texts.chat.askedAgent(String(asked)) : describeTool(call.name)}</span>
      {subject && <span className={styles.subject}>{subject}</span>}
      {call.status === "failed" && <span className={styles.failed}>{texts.chat.callFailed}</span>}
    </>
  );
  return (
    <Fold icon={isAgent ? "agent" : "tool"} title={title} isBusy={isBusy} hasFailed={call.status === "failed"}>
      {inner.length > 0 && (
        <ul className={styles.calls}>
          {inner.map((child) => (
            <li key={child.id}>
              <CallRow call={child} all={all} isRunning={isRunning} depth={depth + 1} />
            </li>
          ))}
        </ul>
      )}
      <dl className={styles.details}>
        <dt>{texts.chat.callArguments}</dt>
        <dd>
          <pre tabIndex={0}>{format(call.arguments)}</pre>
        </dd>
        <dt>{texts.chat.callResult}</dt>
        <dd>
          <Result call={call} />
        </dd>
      </dl>
    </Fold>
  );
}

/** Rows of the memory as what can be opened: they are shown as they are now. Any other result is shown while it is known. */
function Result({ call }: { call: ToolCall }) {
  if (call.status === "running") return texts.chat.callRuns;
  if (call.found) {
    return (
      <>
        <p className={styles.found}>{texts.chat.callFound(call.found.count)}</p>
        <div className={notes.notes}>
          <Sources keys={call.found.keys} />
        </div>
      </>
    );
  }
  return call.result === undefined ? texts.chat.callNotStored : <pre tabIndex={0}>{format(call.result)}</pre>;
}

function describeTool(name: string): string {
  return texts.chat.tools[name] ?? name.replaceAll("_", " ");
}

function describeArguments(call: ToolCall): string {
  const value = ["query", "input_text", "text", "what", "key", "keys", "uri", "name"]
    .map((name) => call.arguments[name])
    .find((given) => typeof given === "string" || Array.isArray(given));
  return value === undefined ? "" : String(value);
}

const MAX_SHOWN_CHARS = 20_000;

function format(value: unknown): string {
  if (value === undefined || value === null) return texts.chat.callNothing;
  const text = typeof value === "string" ? value : JSON.stringify(value, sortNames, 2);
  return text.length > MAX_SHOWN_CHARS ? `${text.slice(0, MAX_SHOWN_CHARS)}\n…` : text;
}

/** The database does not keep the order of names. */
function sortNames(_name: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([first], [second]) => (first < second ? -1 : 1)));
}

interface FoldProps {
  icon: IconName;
  title: ReactNode;
  isBusy?: boolean;
  hasFailed?: boolean;
  children: ReactNode;
}

/** A line that shows more on demand. */
function Fold({ icon, title, isBusy = false, hasFailed = false, children }: FoldProps) {
  const [isOpen, setIsOpen] = useState(false);
  const region = useId();
  return (
    <div className={styles.fold} data-failed={hasFailed || undefined}>
      <button
        type="button"
        className={styles.foldHead}
        aria-expanded={isOpen}
        aria-controls={region}
        onClick={() => setIsOpen(!isOpen)}
      >
        {isBusy ? <Spinner size={16} /> : <Icon name={icon} size={16} />}
        <span className={styles.foldTitle}>{title}</span>
        <Icon name={isOpen ? "chevronDown" : "chevronRight"} size={14} />
      </button>
      <div id={region} className={styles.foldBody} hidden={!isOpen}>
        {isOpen && children}
      </div>
    </div>
  );
}
