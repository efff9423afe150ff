/* A session that is open, outside of React: an answer goes on while another page is shown. */
import { ApiError, call, getTrustsHeaders, OFFLINE, send, SIGN_IN_NEEDED } from "../../api/client";
import { readEvents } from "../../api/sse";
import type { MessageView, SessionView } from "../../api/types";
import { showError } from "../../components/toast";
import { texts } from "../../texts";
import { parseEvent, type ActionCard, type ChatEvent } from "./events";
import { announceSessions } from "./sessions";
import {
  applyEvents,
  describeSubmit,
  emptyAnswer,
  endAnswer,
  toTurns,
  type Answer,
  type Submit,
  type Turn,
} from "./turns";

export interface ChatChoice {
  agent: string | null;
  model: string | null;
}

export interface ConversationState {
  turns: readonly Turn[];
  session: SessionView | null;
  /** `new`: nothing is stored yet. */
  phase: "new" | "loading" | "ready" | "failed";
  error: ApiError | null;
  hasOlder: boolean;
  isRunning: boolean;
  /** The server does not answer, and the page waits for it. */
  isWaiting: boolean;
  /** The newest rating of each answer, by the id of its message. */
  ratings: ReadonlyMap<string, number>;
}

type Question = { text: string } | { recording: string } | { submit: Submit; card: ActionCard };

/** The ids of cards that ask for consent begin so. */
export const APPROVAL_PREFIX = "approval-";
/** A window full; older ones are loaded when the person scrolls up. */
const FIRST_PAGE_MESSAGES = 40;
const PAGE_MESSAGES = 100;
const LAST_INDEX = 2 ** 31 - 1;
/** Events are drawn together, so that a fast stream leaves time for the person. */
const DRAW_MS = 50;
const WAIT_MS = 1000;
/** The server ends what it cannot finish with these codes; it will be back. */
const SERVER_GONE = [OFFLINE, "server_stopping"];

export class Conversation {
  private state: ConversationState;
  private readonly listeners = new Set<() => void>();
  private running: AbortController | null = null;
  /** The stored messages that are shown, oldest first. The first one may stand in the middle of a turn. */
  private messages: readonly MessageView[] = [];

  constructor(
    readonly id: string,
    isNew: boolean,
  ) {
    this.state = {
      turns: [],
      session: null,
      phase: isNew ? "new" : "loading",
      error: null,
      hasOlder: false,
      isRunning: false,
      isWaiting: false,
      ratings: new Map(),
    };
    if (!isNew) void this.load();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly getState = (): ConversationState => this.state;

  async load(): Promise<void> {
    if (this.state.phase !== "ready") this.set({ phase: "loading", error: null });
    try {
      const path = { session: this.id };
      const [session, page] = await Promise.all([
        call("GET /api/v1/sessions/{session}", { path }),
        call("GET /api/v1/sessions/{session}/messages", { path, query: { before: LAST_INDEX, limit: FIRST_PAGE_MESSAGES } }),
      ]);
      this.messages = page.data;
      this.set({ session, turns: toTurns(page.data), hasOlder: page.has_more ?? false, phase: "ready" });
      void this.loadRatings();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.set({ phase: "failed", error });
    }
  }

  /** Load the messages before the first one that is shown. */
  async loadOlder(): Promise<void> {
    const first = this.messages[0];
    if (!first || !this.state.hasOlder) return;
    this.set({ hasOlder: false });
    try {
      const page = await call("GET /api/v1/sessions/{session}/messages", {
        path: { session: this.id },
        query: { before: first.message_index, limit: PAGE_MESSAGES },
      });
      this.set({ turns: this.addOlder(page.data), hasOlder: page.has_more ?? false });
    } catch (error) {
      this.set({ hasOlder: true });
      showError(error);
    }
  }

  /** Return the turns with some older messages before them. A turn that began in them becomes whole. */
  private addOlder(messages: readonly MessageView[]): Turn[] {
    const known = new Map(this.state.turns.map((turn) => [turn.key, turn]));
    const added = this.state.turns.slice(toTurns(this.messages).length);
    this.messages = [...messages, ...this.messages];
    return [...toTurns(this.messages).map((turn) => known.get(turn.key) ?? turn), ...added];
  }

  async ask(text: string, choice: ChatChoice): Promise<void> {
    await this.run({ text }, text, choice);
  }

  async speak(recording: string, choice: ChatChoice): Promise<void> {
    await this.run({ recording }, "", choice);
  }

  async submit(card: ActionCard, submit: Submit, choice: ChatChoice): Promise<void> {
    await this.run({ submit, card }, describeSubmit(card, submit), choice);
  }

  stop(): void {
    this.running?.abort();
  }

  /** Ask a question again, perhaps with other words. What was said since is deleted. */
  async askAgain(turn: Turn, text: string, choice: ChatChoice): Promise<void> {
    if (this.state.isRunning) return;
    try {
      await this.deleteFrom(turn.index);
    } catch (error) {
      showError(error);
      return;
    }
    const place = this.state.turns.findIndex((other) => other.key === turn.key);
    const end = turn.index;
    if (end !== null) this.messages = this.messages.filter((message) => message.message_index < end);
    this.set({ turns: this.state.turns.slice(0, place) });
    await this.ask(text, choice);
  }

  async rate(messageId: string, rating: number, comment: string): Promise<void> {
    await call("POST /api/v1/feedback", {
      body: { message_id: messageId, rating, comment: comment.trim() || null },
    });
    this.set({ ratings: new Map(this.state.ratings).set(messageId, rating) });
  }

  setSession(session: SessionView): void {
    this.set({ session });
  }

  private async run(question: Question, text: string, choice: ChatChoice): Promise<void> {
    if (this.state.isRunning) return;
    const submit = "submit" in question ? question.submit : null;
    const turn: Turn = {
      key: `new-${Date.now()}-${this.state.turns.length}`,
      index: null,
      question: text,
      askedAt: Date.now(),
      submit,
      isSpoken: "recording" in question,
      answer: emptyAnswer("running"),
    };
    this.set({ turns: [...this.state.turns, turn], isRunning: true, phase: "ready" });
    try {
      await this.stream(turn, question, choice);
    } finally {
      this.set({ isRunning: false, isWaiting: false });
    }
    // What is forgotten by consent must not stay on the page.
    if (submit?.card_id.startsWith(APPROVAL_PREFIX)) await this.load();
    else await this.refresh(turn.key);
    announceSessions();
  }

  private async stream(turn: Turn, question: Question, choice: ChatChoice): Promise<void> {
    this.running = new AbortController();
    const { signal } = this.running;
    try {
      const response = await send("POST /api/v1/chat/completions", {
        body: toBody(question, choice),
        headers: toHeaders(this.id, choice),
        signal,
      });
      // The question is stored now.
      if ("recording" in question) void this.refresh(turn.key);
      announceSessions();
      await this.draw(turn.key, response);
    } catch (error) {
      if (signal.aborted) this.setAnswer(turn.key, (answer) => endAnswer(answer, "stopped"));
      else if (error instanceof ApiError && SERVER_GONE.includes(error.code)) await this.recover(turn, question, choice);
      else this.fail(turn.key, error);
    } finally {
      this.running = null;
    }
  }

  /** Draw the events of an answer as they arrive. Throws ApiError (`offline`) if the end is missing. */
  private async draw(key: string, response: Response): Promise<void> {
    let waiting: ChatEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    let hasEnded = false;
    const flush = () => {
      timer = undefined;
      const events = waiting;
      waiting = [];
      if (events.length > 0) this.setAnswer(key, (answer) => applyEvents(answer, events, Date.now()));
    };
    try {
      for await (const { name, data } of readEvents(response)) {
        if (data === "[DONE]") break;
        const event = parseEvent(name, data);
        if (!event) continue;
        if (event.type === "error" && SERVER_GONE.includes(event.code)) throw new ApiError(0, event.code, event.message);
        if (event.type === "error") showError(new ApiError(0, event.code, event.message));
        hasEnded ||= event.type === "done";
        waiting.push(event);
        timer ??= setTimeout(flush, DRAW_MS);
      }
    } finally {
      clearTimeout(timer);
      flush();
    }
    if (!hasEnded) throw new ApiError(0, OFFLINE, "");
  }

  private fail(key: string, error: unknown): void {
    const known = error instanceof ApiError ? error : new ApiError(0, "unknown", "");
    const isAnonymous = known.details?.["tier"] === "anonymous" && !getTrustsHeaders();
    showError(known, isAnonymous ? { label: texts.account.signIn, run: askToSignIn } : undefined);
    const retryAt = known.retryAfter === null ? null : Date.now() + known.retryAfter * 1000;
    this.setAnswer(key, (answer) => ({
      ...endAnswer(answer, "failed"),
      error: { code: known.code, message: known.message, retryAt },
    }));
  }

  /** Wait until the server is back; then show the answer if it was stored, or ask again. */
  private async recover(turn: Turn, question: Question, choice: ChatChoice): Promise<void> {
    this.setAnswer(turn.key, (answer) => endAnswer(answer, "lost"));
    this.set({ isWaiting: true });
    const signal = this.running?.signal;
    while (!(await isServerReady())) {
      if (signal?.aborted) return;
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
    this.set({ isWaiting: false });
    if (signal?.aborted) return;
    const stored = findTurn(await this.listNewer(turn).catch(() => []), turn);
    if (stored?.answer) {
      this.replaceTurn(turn.key, { ...stored, key: turn.key });
      return;
    }
    // An answer to a card may have been carried out. The person decides whether to go on.
    if ("submit" in question) return;
    await this.deleteFrom(stored?.index ?? null);
    this.setAnswer(turn.key, () => emptyAnswer("running"));
    await this.stream(turn, question, choice);
  }

  /** Return the turns that the server has stored after those that are shown before `turn`. */
  private async listNewer(turn: Turn): Promise<Turn[]> {
    const page = await call("GET /api/v1/sessions/{session}/messages", {
      path: { session: this.id },
      query: { before: LAST_INDEX, limit: FIRST_PAGE_MESSAGES },
    });
    const place = this.state.turns.findIndex((other) => other.key === turn.key);
    const known = this.state.turns.slice(0, place).findLast((other) => other.index !== null)?.index ?? -1;
    return toTurns(page.data).filter((other) => other.index !== null && other.index > known);
  }

  /** Load what was said in this session elsewhere, such as in another tab. */
  async catchUp(): Promise<void> {
    const { session, phase, isRunning } = this.state;
    if (!session || phase !== "ready" || isRunning) return;
    const now = await call("GET /api/v1/sessions/{session}", { path: { session: this.id } }).catch(() => null);
    if (now && now.message_count !== session.message_count && !this.state.isRunning) await this.load();
  }

  /** Take over what only the server knows of the newest turn: its index, the words of a recording, times. */
  private async refresh(key: string): Promise<void> {
    const turn = this.state.turns.find((other) => other.key === key);
    if (!turn) return;
    try {
      const [newer, session] = await Promise.all([
        this.listNewer(turn),
        call("GET /api/v1/sessions/{session}", { path: { session: this.id } }),
      ]);
      this.set({ session });
      const current = this.state.turns.find((other) => other.key === key);
      const stored = current && findTurn(newer, current);
      if (!stored || !current) return;
      if (newer.length > 1 && !this.state.isRunning) {
        // Another tab has written here, too.
        await this.load();
        return;
      }
      this.replaceTurn(key, {
        ...current,
        index: stored.index,
        question: stored.question,
        isSpoken: false,
        answer: current.answer && { ...current.answer, messageId: current.answer.messageId ?? stored.answer?.messageId ?? null },
      });
    } catch {
      // The answer is there. Its index is asked for again before it is needed.
    }
  }

  private async deleteFrom(index: number | null): Promise<void> {
    if (index === null) return;
    await call("POST /api/v1/sessions/{session}/clear", { path: { session: this.id }, body: { from_index: index } });
  }

  private async loadRatings(): Promise<void> {
    const page = await call("GET /api/v1/feedback", { query: { session_id: this.id, limit: 500 } }).catch(() => null);
    const ratings = new Map<string, number>();
    for (const { message_id, rating } of page?.data ?? []) {
      if (message_id && rating !== null && !ratings.has(message_id)) ratings.set(message_id, rating);
    }
    if (ratings.size > 0) this.set({ ratings });
  }

  private setAnswer(key: string, change: (answer: Answer) => Answer): void {
    const turn = this.state.turns.find((other) => other.key === key);
    if (turn?.answer) this.replaceTurn(key, { ...turn, answer: change(turn.answer) });
  }

  private replaceTurn(key: string, turn: Turn): void {
    this.set({ turns: this.state.turns.map((other) => (other.key === key ? turn : other)) });
  }

  private set(change: Partial<ConversationState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }
}

/** Find a turn among stored ones: by its answer, or else the newest with its words. */
function findTurn(stored: readonly Turn[], turn: Turn): Turn | null {
  const id = turn.answer?.messageId;
  const byAnswer = id ? stored.find((other) => other.answer?.messageId === id) : undefined;
  return byAnswer ?? stored.findLast((other) => other.question === turn.question) ?? stored.at(-1) ?? null;
}

function toBody(question: Question, choice: ChatChoice): unknown {
  const model = choice.model ?? undefined;
  if ("text" in question) return { model, stream: true, messages: [{ role: "user", content: question.text }] };
  if ("submit" in question) {
    return { model, stream: true, messages: [{ role: "user", content: "" }], action_submit: question.submit };
  }
  const input_audio = { data: question.recording, format: "wav" };
  return { model, stream: true, messages: [{ role: "user", content: [{ type: "input_audio", input_audio }] }] };
}

function toHeaders(session: string, choice: ChatChoice): Record<string, string> {
  return { "X-Session-Id": session, ...(choice.agent ? { "X-Agent-Schema": choice.agent } : {}) };
}

function askToSignIn(): void {
  window.dispatchEvent(new Event(SIGN_IN_NEEDED));
}

async function isServerReady(): Promise<boolean> {
  try {
    return (await fetch("/health/ready", { cache: "no-store" })).ok;
  } catch {
    return false;
  }
}

const MAX_OPEN = 8;
const open = new Map<string, Conversation>();

/** Return the open conversation of a session, or open it. `owner` keeps those of several users apart. */
export function openConversation(owner: string, id: string, isNew = false): Conversation {
  const key = `${owner} ${id}`;
  const known = open.get(key);
  // What could not be loaded is tried again.
  const conversation = known && known.getState().phase !== "failed" ? known : new Conversation(id, isNew);
  open.delete(key);
  open.set(key, conversation);
  for (const [other, { getState }] of open) {
    if (open.size <= MAX_OPEN) break;
    if (!getState().isRunning && other !== key) open.delete(other);
  }
  return conversation;
}

export function closeConversation(owner: string, id: string): void {
  open.get(`${owner} ${id}`)?.stop();
  open.delete(`${owner} ${id}`);
}

export function newSessionId(): string {
  // `randomUUID` exists only on secure pages, and a server in the local network has none.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
