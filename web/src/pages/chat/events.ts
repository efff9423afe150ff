/* The events of an answer, as the server sends them (docs/chat.md). OpenAPI does not describe them. */

export interface CardAction {
  type: "Action.Submit" | "Action.OpenUrl" | "Action.ShowCard";
  id: string;
  title: string;
  style: "default" | "primary" | "secondary" | "destructive" | "positive";
  data?: Record<string, unknown>;
  url?: string;
  card?: ActionCard;
}

export interface CardInput {
  type: "Input.Text" | "Input.ChoiceSet" | "Input.Toggle";
  id: string;
  label?: string;
  placeholder?: string;
  is_required?: boolean;
  is_multiline?: boolean;
  choices?: { title: string; value: string }[];
  value?: string | boolean;
}

export interface ActionCard {
  id: string;
  prompt: string;
  display_style: "inline" | "modal" | "sidebar";
  actions: CardAction[];
  inputs: CardInput[];
  timeout_ms?: number;
}

/** What an agent notes about its answer. */
export interface Notes {
  confidence?: number;
  sources?: string[];
  references?: string[];
  flags?: string[];
  risk_level?: string;
  risk_score?: number;
  session_name?: string;
  extra?: Record<string, unknown>;
}

export type ChatEvent =
  | { type: "text_delta"; content: string }
  | { type: "reasoning"; content: string; step: number; agent?: string }
  | {
      type: "progress";
      step: number;
      total_steps: number;
      label: string;
      status: "pending" | "in_progress" | "completed" | "failed";
      agent?: string;
    }
  | {
      type: "tool_call";
      tool_name: string;
      tool_id: string;
      status: "started" | "completed" | "failed";
      arguments?: Record<string, unknown>;
      result?: unknown;
      agent?: string;
    }
  | { type: "action_request"; card: ActionCard; agent?: string }
  | { type: "action"; action_type: string; payload: Record<string, unknown>; agent?: string }
  | ({ type: "metadata"; message_id?: string; model_version?: string; latency_ms?: number; hidden?: boolean } & Notes & {
        agent?: string;
      })
  | { type: "error"; code: string; message: string; agent?: string }
  | { type: "done"; reason: "stop" | "length" | "error" | "cancelled"; agent?: string };

interface Chunk {
  choices?: { delta?: { content?: string | null } }[];
}

/** Return the event of a server-sent event; null for a chunk without text. */
export function parseEvent(name: string | null, data: string): ChatEvent | null {
  const body = JSON.parse(data) as Chunk & ChatEvent;
  if (name !== null) return body;
  const content = body.choices?.[0]?.delta?.content;
  return content ? { type: "text_delta", content } : null;
}
