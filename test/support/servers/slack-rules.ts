// Slack's rules for a message, from its reference. A complaint has the same words as Slack's own.

export interface KnownFiles {
  /** True if the app's messages may name the file now. */
  usable(id: string): boolean;
}

type Json = Record<string, unknown>;

/** Empty if Slack accepts the blocks. */
export function blockComplaints(blocks: unknown, files: KnownFiles): string[] {
  if (!Array.isArray(blocks)) return ['must be an array [json-pointer:/blocks]'];
  if (blocks.length > 50) return ['no more than 50 items allowed [json-pointer:/blocks]'];
  return blocks.flatMap((block: unknown, index) => complaintsOf(block as Json, `/blocks/${index}`, files));
}

function complaintsOf(block: Json, at: string, files: KnownFiles): string[] {
  switch (block.type) {
    case 'header':
      return [...only(block, at, ['text']), ...text(block.text, `${at}/text`, 150, ['plain_text'])];
    case 'section':
      return section(block, at);
    case 'context':
      return [
        ...only(block, at, ['elements']),
        ...items(block.elements, `${at}/elements`, 10, (one, place) =>
          text(one, place, 3000, ['plain_text', 'mrkdwn']),
        ),
      ];
    case 'image':
      return [
        ...only(block, at, ['slack_file', 'alt_text', 'title']),
        ...length(block.alt_text, `${at}/alt_text`, 2000),
        ...('title' in block ? text(block.title, `${at}/title`, 2000, ['plain_text']) : []),
        ...slackFile(block.slack_file, `${at}/slack_file`, files),
      ];
    default:
      return [`unsupported type: ${String(block.type)} [json-pointer:${at}/type]`];
  }
}

function section(block: Json, at: string): string[] {
  if (!('text' in block) && !('fields' in block))
    return [`missing required field: text [json-pointer:${at}]`];
  return [
    ...only(block, at, ['text', 'fields']),
    ...('text' in block ? text(block.text, `${at}/text`, 3000, ['plain_text', 'mrkdwn']) : []),
    ...('fields' in block
      ? items(block.fields, `${at}/fields`, 10, (one, place) =>
          text(one, place, 2000, ['plain_text', 'mrkdwn']),
        )
      : []),
  ];
}

function items(
  list: unknown,
  at: string,
  most: number,
  each: (item: unknown, at: string) => string[],
): string[] {
  if (!Array.isArray(list) || list.length === 0)
    return [`no fewer than 1 items allowed [json-pointer:${at}]`];
  if (list.length > most) return [`no more than ${most} items allowed [json-pointer:${at}]`];
  return list.flatMap((item: unknown, index) => each(item, `${at}/${index}`));
}

function text(value: unknown, at: string, most: number, types: string[]): string[] {
  const object = (value ?? {}) as Json;
  if (!types.includes(String(object.type)))
    return [`unsupported type: ${String(object.type)} [json-pointer:${at}/type]`];
  const own = object.type === 'mrkdwn' ? ['text', 'verbatim'] : ['text', 'emoji'];
  return [...only(object, at, own), ...length(object.text, `${at}/text`, most)];
}

function length(value: unknown, at: string, most: number): string[] {
  if (typeof value !== 'string' || value.length === 0)
    return [`must be more than 0 characters [json-pointer:${at}]`];
  return value.length > most ? [`must be less than ${most + 1} characters [json-pointer:${at}]`] : [];
}

function slackFile(value: unknown, at: string, files: KnownFiles): string[] {
  const { id } = (value ?? {}) as Json;
  if (typeof id !== 'string' || !/^F[A-Z0-9]{8,}$/.test(id))
    return [`input must match regex pattern: ^[F][A-Z0-9]{8,}$ [json-pointer:${at}/id]`];
  return files.usable(id) ? [] : [`invalid slack file [json-pointer:${at}]`];
}

function only(object: Json, at: string, known: string[]): string[] {
  return Object.keys(object)
    .filter((key) => key !== 'type' && key !== 'block_id' && !known.includes(key))
    .map((key) => `invalid additional property: ${key} [json-pointer:${at}]`);
}
