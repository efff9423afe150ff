/* A session as the page shows it: turns of a question and its answer, from stored messages or from events. */
import type { MessageView } from "../../api/types";
import type { ActionCard, ChatEvent, Notes } from "./events";

export interface ToolCall {
  id: string;
  name: string;
  /** The agent that called it. */
  agent: string | null;
  arguments: Record<string, unknown>;
  /** `stored`: it did not end, or the server does not know how. */
  status: "running" | "completed" | "failed" | "stored";
  /** The result, if the call ended while the page was open: the server does not keep it. */
  result?: unknown;
  /** The rows of the memory that it returned; null if it returns none. */
  found: Found | null;
}

export interface Found {
  keys: string[];
  /** How many rows there were; not all of them are named. */
  count: number;
}

export interface Step {
  step: number;
  total: number;
  label: string;
  status: "pending" | "in_progress" | "completed" | "failed";
  agent: string | null;
}

export interface ShownCard {
  card: ActionCard;
  /** When it was shown, in milliseconds: the time to answer begins here. */
  shownAt: number;
  /** It arrived while the page was open. */
  isNew: boolean;
}

export interface AnswerError {
  code: string;
  message: string;
  /** When the next attempt may succeed, in milliseconds. */
  retryAt: number | null;
}

export type AnswerState = "running" | "done" | "stopped" | "failed" | "lost";

export interface Answer {
  messageId: string | null;
  agent: string | null;
  model: string | null;
  text: string;
  thoughts: { step: number; agent: string | null; content: string }[];
  calls: ToolCall[];
  steps: Step[];
  notes: Notes;
  cards: ShownCard[];
  state: AnswerState;
  isCut: boolean;
  error: AnswerError | null;
}

export interface Submit {
  card_id: string;
  action_id: string;
  inputs: Record<string, boolean | string>;
}

export interface Turn {
  key: string;
  /** The index of the question in the session; null until the server has stored it. */
  index: number | null;
  question: string | null;
  askedAt: number;
  /** The question answers a card. */
  submit: Submit | null;
  /** The question is a recording whose words are not known yet. */
  isSpoken: boolean;
  answer: Answer | null;
}

interface StoredOutcome {
  status: "completed" | "failed";
  keys?: string[];
  count?: number;
}

/** The name of stored messages with the thoughts of a model. */
const REASONING = "reasoning";
const NOTE_TOOLS = ["register_metadata", "action"];

export function emptyAnswer(state: AnswerState): Answer {
  return {
    messageId: null,
    agent: null,
    model: null,
    text: "",
    thoughts: [],
    calls: [],
    steps: [],
    notes: {},
    cards: [],
    state,
    isCut: false,
    error: null,
  };
}

/** Return the answer after some further events. The old one is not changed. */
export function applyEvents(old: Answer, events: readonly ChatEvent[], now: number): Answer {
  const answer = { ...old };
  const pieces: string[] = [];
  for (const event of events) {
    switch (event.type) {
      case "text_delta":
        pieces.push(event.content);
        break;
      case "reasoning":
        answer.thoughts = addThought(answer.thoughts, event);
        break;
      case "progress":
        answer.steps = addStep(answer.steps, event);
        break;
      case "tool_call":
        answer.calls = addCall(answer.calls, event);
        break;
      case "action_request":
        answer.cards = [...answer.cards, { card: event.card, shownAt: now, isNew: true }];
        break;
      case "metadata":
        answer.notes = mergeNotes(answer.notes, event);
        if (event.message_id) answer.messageId = event.message_id;
        if (event.hidden) Object.assign(answer, { model: event.model_version ?? answer.model, agent: event.agent ?? null });
        break;
      case "error":
        answer.error = { code: event.code, message: event.message, retryAt: null };
        break;
      case "done":
        answer.state = answer.error ? "failed" : "done";
        answer.isCut = event.reason === "length";
        break;
      case "action":
        break;
    }
  }
  if (pieces.length > 0) answer.text += pieces.join("");
  return answer;
}

/** Mark what still runs as ended, when no further event comes. */
export function endAnswer(answer: Answer, state: AnswerState): Answer {
  return {
    ...answer,
    state,
    calls: answer.calls.map((call) => (call.status === "running" ? { ...call, status: "stored" } : call)),
    steps: [],
  };
}

function addThought(thoughts: Answer["thoughts"], event: ChatEvent & { type: "reasoning" }): Answer["thoughts"] {
  const last = thoughts.at(-1);
  const agent = event.agent ?? null;
  if (last && last.step === event.step && last.agent === agent) {
    return [...thoughts.slice(0, -1), { ...last, content: last.content + event.content }];
  }
  return [...thoughts, { step: event.step, agent, content: event.content }];
}

function addStep(steps: Step[], event: ChatEvent & { type: "progress" }): Step[] {
  const agent = event.agent ?? null;
  const step = { step: event.step, total: event.total_steps, label: event.label, status: event.status, agent };
  const place = steps.findIndex((other) => other.agent === agent && other.label === event.label && other.step === event.step);
  return place < 0 ? [...steps, step] : steps.with(place, step);
}

function addCall(calls: ToolCall[], event: ChatEvent & { type: "tool_call" }): ToolCall[] {
  const agent = event.agent ?? null;
  const place = calls.findIndex((call) => call.id === event.tool_id && call.agent === agent);
  const call: ToolCall = {
    id: event.tool_id,
    name: event.tool_name,
    agent,
    arguments: event.arguments ?? calls[place]?.arguments ?? {},
    status: event.status === "started" ? "running" : event.status,
    result: event.result,
    found: listFound(event.result),
  };
  return place < 0 ? [...calls, call] : calls.with(place, call);
}

const MAX_FOUND_KEYS = 20;

/** The rows in a result, as the server keeps them. */
function listFound(result: unknown): Found | null {
  const rows = (result as { results?: unknown } | null | undefined)?.results;
  if (!Array.isArray(rows)) return null;
  const keys = rows.map((row) => (row as { key?: unknown } | null)?.key).filter((key) => typeof key === "string");
  return { keys: [...new Set(keys)].slice(0, MAX_FOUND_KEYS), count: rows.length };
}

function mergeNotes(old: Notes, added: Notes): Notes {
  const { confidence, sources, references, flags, risk_level, risk_score, session_name, extra } = added;
  const merge = (first: string[] | undefined, second: string[] | undefined) =>
    second ? [...new Set([...(first ?? []), ...second])] : first;
  return {
    confidence: confidence ?? old.confidence,
    sources: merge(old.sources, sources),
    references: merge(old.references, references),
    flags: merge(old.flags, flags),
    risk_level: risk_level ?? old.risk_level,
    risk_score: risk_score ?? old.risk_score,
    session_name: session_name ?? old.session_name,
    extra: extra ? { ...old.extra, ...extra } : old.extra,
  };
}

/** Group the stored messages of a session into turns. */
export function toTurns(messages: readonly MessageView[]): Turn[] {
  const turns: Turn[] = [];
  for (const message of messages) {
    if (message.role === "system") continue;
    let turn = turns.at(-1);
    if (message.role === "user" || !turn) {
      turn = toTurn(message);
      turns.push(turn);
    }
    if (message.role !== "user") turn.answer = addMessage(turn.answer ?? emptyAnswer("done"), message);
  }
  return turns;
}

function toTurn(message: MessageView): Turn {
  const isQuestion = message.role === "user";
  return {
    key: message.id,
    index: isQuestion ? message.message_index : null,
    question: isQuestion ? message.content : null,
    askedAt: Date.parse(message.created_at),
    submit: (message.metadata["action_submit"] as Submit | undefined) ?? null,
    isSpoken: false,
    answer: null,
  };
}

function addMessage(answer: Answer, message: MessageView): Answer {
  const { metadata } = message;
  const cards = ((metadata["cards"] ?? []) as ActionCard[]).map((card) => ({
    card,
    shownAt: Date.parse(message.created_at),
    isNew: false,
  }));
  const next: Answer = { ...answer, cards: [...answer.cards, ...cards], messageId: message.id, model: message.model };
  if (metadata["interrupted"]) next.state = "stopped";
  if (Array.isArray(metadata["flags"])) next.notes = mergeNotes(next.notes, { flags: metadata["flags"] as string[] });
  if (message.role !== "tool") {
    return { ...next, agent: (metadata["agent"] as string | undefined) ?? null, text: next.text + message.content };
  }
  const name = message.tool_name ?? "";
  const agent = (metadata["agent"] as string | undefined) ?? null;
  if (name === REASONING && message.tool_call_id === null) {
    const step = typeof metadata["step"] === "number" ? metadata["step"] : next.thoughts.length + 1;
    return { ...next, messageId: answer.messageId, thoughts: [...next.thoughts, { step, agent, content: message.content }] };
  }
  const given = (metadata["tool_arguments"] ?? {}) as Record<string, unknown>;
  const outcome = metadata["outcome"] as StoredOutcome | undefined;
  next.calls = [
    ...next.calls,
    {
      id: message.tool_call_id ?? message.id,
      name,
      agent,
      arguments: given,
      status: outcome?.status ?? "stored",
      found: outcome?.keys ? { keys: outcome.keys, count: outcome.count ?? outcome.keys.length } : null,
    },
  ];
  if (name === "register_metadata") next.notes = mergeNotes(next.notes, given as Notes);
  if (name === "action" && given["type"] === "observation") {
    next.notes = mergeNotes(next.notes, (given["payload"] ?? {}) as Notes);
  }
  return next;
}

/** The calls that a person wants to see: notes appear as badges and cards. */
export function listVisibleCalls(calls: readonly ToolCall[]): ToolCall[] {
  return calls.filter((call) => !NOTE_TOOLS.includes(call.name));
}

/** The text of an answer to a card, as the server stores it. */
export function describeSubmit(card: ActionCard, submit: Submit): string {
  const parts = listParts(card);
  const action = parts.flatMap((part) => part.actions).find((each) => each.id === submit.action_id);
  const lines = [action?.title ?? submit.action_id];
  for (const input of parts.flatMap((part) => part.inputs)) {
    const value = submit.inputs[input.id];
    if (value === undefined || value === "") continue;
    lines.push(`${input.label ?? input.id}: ${typeof value === "string" ? value : value ? "yes" : "no"}`);
  }
  return lines.join("\n");
}

/** The card and the cards that its buttons reveal. */
export function listParts(card: ActionCard): ActionCard[] {
  return [card, ...card.actions.flatMap((action) => (action.card ? listParts(action.card) : []))];
}
