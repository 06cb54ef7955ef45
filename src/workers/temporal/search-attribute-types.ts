// Search attribute types as numbers of Temporal's API (temporal.api.enums.v1.IndexedValueType).
export const IndexedValueType = { Text: 1, Keyword: 2, Int: 3, Double: 4, Bool: 5, Datetime: 6 } as const;
